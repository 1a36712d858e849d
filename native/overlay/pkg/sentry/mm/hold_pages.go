package mm

import (
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// HoldPrivatePages makes mm's private pages copy-on-write, as a fork does, and calls hold with them. If hold takes a
// reference on them, they stay unchanged for as long.
func (mm *MemoryManager) HoldPrivatePages(hold func(memmap.FileRange)) {
	mm.mappingMu.RLock()
	defer mm.mappingMu.RUnlock()
	mm.activeMu.Lock()
	defer mm.activeMu.Unlock()
	var unmapAR hostarch.AddrRange
	for pseg := mm.pmas.FirstSegment(); pseg.Ok(); pseg = pseg.NextSegment() {
		pma := pseg.ValuePtr()
		// A device may write to pages that are pinned.
		if !pma.private || (mm.hasPinned && !pma.needCOW) {
			continue
		}
		if !pma.needCOW {
			pma.needCOW = true
			if pma.effectivePerms.Write {
				pma.effectivePerms.Write = false
				if unmapAR.End == pseg.Start() {
					unmapAR.End = pseg.End()
				} else {
					mm.unmapASLocked(unmapAR)
					unmapAR = pseg.Range()
				}
			}
			pma.maxPerms.Write = false
		}
		hold(pseg.fileRange())
	}
	mm.unmapASLocked(unmapAR)
}
