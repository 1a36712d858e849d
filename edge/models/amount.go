// Package models has the rules of the model gateway: which models a sandbox may use, what a request costs at most and in the
// end, and how much may still be spent. It does no I/O.
package models

import "math"

// Amount is how much is spent: tokens, and money in nano-dollars.
type Amount struct {
	Tokens int64 `json:"tokens"`
	Nanos  int64 `json:"nanos"`
}

func (a Amount) plus(b Amount) Amount { return Amount{add(a.Tokens, b.Tokens), add(a.Nanos, b.Nanos)} }

func (a Amount) minus(b Amount) Amount { return a.plus(Amount{-b.Tokens, -b.Nanos}) }

// positive is it without what is below zero.
func (a Amount) positive() Amount { return Amount{max(a.Tokens, 0), max(a.Nanos, 0)} }

// most bounds every sum, so that none flows over.
const most = math.MaxInt64 / 4

func add(a, b int64) int64 { return bounded(bounded(a) + bounded(b)) }

func bounded(a int64) int64 { return max(min(a, most), -most) }

// times multiplies two numbers that are not negative.
func times(a, b int64) int64 {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > most/b {
		return most
	}
	return a * b
}
