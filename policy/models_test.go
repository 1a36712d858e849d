package policy

import "testing"

func TestNoRuleOpensTheGatewayOfModels(t *testing.T) {
	every := gatekeeper(
		t, Terms{}, `{"action":"ask","hosts":["models.atoll.internal"]}`,
		`{"action":"allow","hosts":["*","models.atoll.internal"],"addresses":["0.0.0.0/0","127.0.0.0/8"],"ports":["1-65535"]}`,
	)
	observed := gatekeeper(t, Terms{Observe: true}, `{"action":"allow","hosts":["models.atoll.internal"]}`)
	for name, bounds := range map[string]*Bounds{
		"none": {}, "every": {Own: every}, "observed": {Own: observed}, "bounded": {Own: every, Ceiling: every},
		"by a proxy": {Own: gatekeeper(t, Terms{Proxy: &Proxy{}}, `{"action":"allow","hosts":["models.atoll.internal"]}`)},
	} {
		for _, asked := range []Asked{
			{Name: ModelsName, Port: 80}, {Name: "Models.Atoll.Internal.", Port: 80, Addresses: []Known{{Address: "127.0.0.1", Own: true}}},
		} {
			if found := bounds.Decide(asked); found.Action != Deny || found.Resolve {
				t.Errorf("%s: %+v is %+v", name, asked, found)
			}
		}
		if found := bounds.Connection(ModelsName, Known{Address: "127.0.0.1"}, 80); found.Action != Deny {
			t.Errorf("%s: an open connection is %+v", name, found)
		}
		if name != "observed" && bounds.Name(ModelsName).Action != Deny {
			t.Errorf("%s: the name is known", name)
		}
	}
}
