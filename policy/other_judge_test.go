package policy

import (
	"encoding/json"
	"os"
	"testing"
)

// The supervisor's tests ask this judge what they ask their own one: see tests/unit/policy/test_go_judge.py. The program of
// these tests answers them, so that the edge needs no message for it.
func TestMain(m *testing.M) {
	if os.Getenv("ATOLL_TEST_JUDGE") == "" {
		os.Exit(m.Run())
	}
	questions, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var asked askedByOthers
		if err := questions.Decode(&asked); err != nil {
			os.Exit(0)
		}
		if err := answers.Encode(asked.answer()); err != nil {
			os.Exit(1)
		}
	}
}

type spelledOut struct {
	Rules       []json.RawMessage `json:"rules"`
	Observe     bool              `json:"observe"`
	Passthrough []string          `json:"passthrough"`
	Proxy       *Proxy            `json:"proxy"`
}

func (s *spelledOut) gatekeeper() *Gatekeeper {
	if s == nil {
		return nil
	}
	rules, err := ParseRules(s.Rules)
	if err != nil {
		panic(err)
	}
	return NewGatekeeper(Terms{Rules: rules, Observe: s.Observe, Passthrough: s.Passthrough, Proxy: s.Proxy})
}

type askedByOthers struct {
	Policy       *spelledOut `json:"policy"`
	Ceiling      *spelledOut `json:"ceiling"`
	Destinations []Asked     `json:"destinations"`
}

type toldVerdict struct {
	Action   string `json:"action"`
	Rule     *int   `json:"rule"`
	Kept     []int  `json:"kept"`
	Reason   string `json:"reason"`
	Observed bool   `json:"observed"`
	Ceiling  bool   `json:"ceiling"`
	Above    []int  `json:"above"`
}

func told(found Admission) toldVerdict {
	verdict := toldVerdict{
		Action: found.Action, Kept: indices(found.Kept), Reason: found.Reason, Observed: found.Observed,
		Ceiling: found.Ceiling, Above: indices(found.Above),
	}
	if found.Rule != nil {
		verdict.Rule = &found.Rule.Index
	}
	return verdict
}

func indices(rules []*Rule) []int {
	found := []int{}
	for _, rule := range rules {
		found = append(found, rule.Index)
	}
	return found
}

type toldAnswer struct {
	// By the policy and its ceiling.
	Way       toldVerdict `json:"way"`
	Address   string      `json:"address"`
	Resolve   bool        `json:"resolve"`
	LooksInto bool        `json:"looks_into"`
	// By the policy alone, for the first address.
	Name       toldVerdict `json:"name"`
	Knows      bool        `json:"knows"`
	Proxied    bool        `json:"proxied"`
	Connection toldVerdict `json:"connection"`
	Unresolved toldVerdict `json:"unresolved"`
}

func (q *askedByOthers) answer() []toldAnswer {
	bounds := &Bounds{Own: q.Policy.gatekeeper(), Ceiling: q.Ceiling.gatekeeper()}
	answers := make([]toldAnswer, len(q.Destinations))
	for i, each := range q.Destinations {
		way := bounds.Decide(each)
		answer := toldAnswer{
			Way: told(way.Admission), Address: way.Address, Resolve: way.Resolve,
			LooksInto: bounds.LooksInto(PlainHost(each.Name)),
		}
		if own := bounds.Own; own != nil {
			address := ""
			if len(each.Addresses) > 0 {
				address = each.Addresses[0].Address
			}
			answer.Name, answer.Knows = told(own.Name(each.Name)), own.KnowsAddress(each.Name, address)
			answer.Proxied = own.Proxied(PlainHost(each.Name))
			answer.Connection = told(own.Connection(each.Name, address, each.Port))
			answer.Unresolved = told(own.Unresolved(each.Name, each.Port))
		}
		answers[i] = answer
	}
	return answers
}
