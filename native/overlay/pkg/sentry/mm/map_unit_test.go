package mm

import (
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
)

func fault(at hostarch.Addr) hostarch.AddrRange {
	return hostarch.AddrRange{Start: at, End: at + hostarch.PageSize}
}

func TestTwiceAsMuchIsMappedWhereTheGuestGoesOn(t *testing.T) {
	const most = 1 << 40
	mm := &MemoryManager{}
	at := hostarch.Addr(1 << 30)
	end := mm.lateMapEnd(fault(at), at+lateUnitLeast, most)
	if end != at+lateUnitLeast {
		t.Fatalf("the first mapping has %d bytes", end-at)
	}
	for unit := hostarch.Addr(2 * lateUnitLeast); unit <= 4*lateUnitMost; unit *= 2 {
		at, end = end, mm.lateMapEnd(fault(end), end+lateUnitLeast, most)
		if want := min(unit, lateUnitMost); end-at != want {
			t.Errorf("a mapping has %d bytes, want %d", end-at, want)
		}
	}
	elsewhere := hostarch.Addr(1 << 35)
	if end := mm.lateMapEnd(fault(elsewhere), elsewhere+lateUnitLeast, most); end != elsewhere+lateUnitLeast {
		t.Errorf("elsewhere a mapping has %d bytes", end-elsewhere)
	}
}

func TestNothingIsMappedBehindTheEnd(t *testing.T) {
	mm := &MemoryManager{}
	at := hostarch.Addr(1 << 30)
	most := at + lateUnitLeast + 2*hostarch.PageSize
	end := mm.lateMapEnd(fault(at), at+lateUnitLeast, most)
	if end = mm.lateMapEnd(fault(end), end+lateUnitLeast, most); end != most {
		t.Errorf("it ends %d bytes behind", end-most)
	}
}
