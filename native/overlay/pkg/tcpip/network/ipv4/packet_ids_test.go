package ipv4

import (
	"testing"

	"gvisor.dev/gvisor/pkg/atomicbitops"
)

func TestTheCountersOfPacketsAreTheSameAfterASave(t *testing.T) {
	p := &protocol{ids: make([]atomicbitops.Uint32, 2048)}
	for i := range p.ids {
		p.ids[i].Store(uint32(i) * 0x01010203)
	}
	text := p.idsText()
	if len(text) != 4*2048 {
		t.Errorf("%d bytes", len(text))
	}
	var other protocol
	other.setIDs(text)
	if len(other.ids) != len(p.ids) {
		t.Fatalf("%d counters", len(other.ids))
	}
	for i := range p.ids {
		if got, want := other.ids[i].Load(), p.ids[i].Load(); got != want {
			t.Fatalf("counter %d is %d, want %d", i, got, want)
		}
	}
	if other.setIDs(""); len(other.ids) != 0 {
		t.Errorf("%d counters of none", len(other.ids))
	}
}
