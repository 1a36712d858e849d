// Spawn prints the median time, in milliseconds, of starting true and waiting for it, N times.
//
// With a second argument, so many do it beside each other, and it prints the milliseconds that all N took together.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"
)

func main() {
	if len(os.Args) > 2 {
		fmt.Println(together(number(1), number(2)))
		return
	}
	times := make([]float64, number(1))
	for i := range times {
		began := time.Now()
		spawn()
		times[i] = milliseconds(began)
	}
	slices.Sort(times)
	fmt.Println(times[len(times)/2])
}

func together(rounds, workers int) float64 {
	began := time.Now()
	work := make(chan struct{})
	var done sync.WaitGroup
	for range workers {
		done.Go(func() {
			for range work {
				spawn()
			}
		})
	}
	for range rounds {
		work <- struct{}{}
	}
	close(work)
	done.Wait()
	return milliseconds(began)
}

func spawn() {
	check(exec.Command("/bin/true").Run())
}

func number(at int) int {
	value, err := strconv.Atoi(os.Args[at])
	check(err)
	return value
}

func milliseconds(began time.Time) float64 {
	return time.Since(began).Seconds() * 1000
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
