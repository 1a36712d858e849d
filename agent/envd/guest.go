package envd

import (
	"net/http"
	"syscall"
	"time"
)

const mib = 1 << 20

func (a *API) metrics(w http.ResponseWriter, _ *http.Request) {
	now := a.meter.read()
	var disk syscall.Statfs_t
	// Without an answer the disk counts as empty.
	_ = syscall.Statfs("/", &disk)
	block := uint64(disk.Bsize)
	answer(w, http.StatusOK, map[string]any{
		"ts": time.Now().Unix(), "cpu_count": now.cpus, "cpu_used_pct": now.cpuPercent,
		"mem_total": now.memoryTotal, "mem_used": now.memoryUsed, "mem_cache": now.memoryCache,
		"mem_total_mib": now.memoryTotal / mib, "mem_used_mib": now.memoryUsed / mib,
		"disk_used": (disk.Blocks - disk.Bfree) * block, "disk_total": disk.Blocks * block,
	})
}
