package policy

import "testing"

func TestCanariesAreFoundInNames(t *testing.T) {
	canaries := NewCanaries([]string{"Canary-Value.1", "abc"})
	for name, isThere := range map[string]bool{
		"canary-value1.example.com":                 true,
		"CAN.ary-VAL.ue.1.example.com":              true,
		"43616e6172792d5661.6c75652e31.example.com": true,
		"inqw4ylspewvmylmovss4mi.example.com":       true,
		"8dgmsob.if4mlcobcel.iisc8.example.com":     true,
		"8dgmsob.if4mlcobcel.iisc9.example.com":     false,
		"q2fuyxj5lvzhbhvllje.example.com":           true,
		"canary-value.example.com":                  false,
		"abc.example.com":                           false,
		"":                                          false,
	} {
		if canaries.InName(name) != isThere {
			t.Errorf("%q: found is %v", name, !isThere)
		}
	}
	if NewCanaries(nil).InName("a.example.com") {
		t.Error("nothing is found")
	}
}
