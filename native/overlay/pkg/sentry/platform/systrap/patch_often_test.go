package systrap

import "testing"

func TestASystemCallIsPatchedWhenItHasTrappedThreeTimes(t *testing.T) {
	s := &subprocess{traps: make(map[uintptr]uint8)}
	for round := range 2 {
		for trap := 1; trap <= patchAfter; trap++ {
			if often := s.trappedOften(0x1000); often != (trap == patchAfter) {
				t.Errorf("round %d, trap %d: %v", round, trap, often)
			}
		}
	}
	if len(s.traps) != 0 {
		t.Errorf("%d traps are still counted", len(s.traps))
	}
}

func TestNoMoreTrapsAreCountedThanThereIsRoomFor(t *testing.T) {
	s := &subprocess{traps: make(map[uintptr]uint8)}
	for ip := range uintptr(3 * maxTraps) {
		s.trappedOften(ip)
		if len(s.traps) > maxTraps {
			t.Fatalf("%d traps are counted", len(s.traps))
		}
	}
}
