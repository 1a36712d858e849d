package envd

import (
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// meter tells how busy the processors were since it was read before.
type meter struct {
	mu    sync.Mutex
	total uint64
	idle  uint64
}

type reading struct {
	cpus        int
	cpuPercent  float64
	memoryTotal uint64
	memoryUsed  uint64
	memoryCache uint64
}

func (m *meter) read() reading {
	r := reading{cpus: runtime.NumCPU(), cpuPercent: m.cpu()}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return r
	}
	values := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 {
			// A field that is no number counts as 0.
			kib, _ := strconv.ParseUint(fields[1], 10, 64)
			values[fields[0]] = kib << 10
		}
	}
	r.memoryTotal = values["MemTotal:"]
	r.memoryCache = values["Cached:"]
	available := values["MemFree:"] + values["Cached:"] + values["Buffers:"]
	if r.memoryTotal > available {
		r.memoryUsed = r.memoryTotal - available
	}
	return r
}

func (m *meter) cpu() float64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var total, idle uint64
	const idleField, waitField = 4, 5
	for i, field := range strings.Fields(line) {
		ticks, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			continue
		}
		total += ticks
		if i == idleField || i == waitField {
			idle += ticks
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	spent, rested := total-m.total, idle-m.idle
	m.total, m.idle = total, idle
	if spent == 0 || rested > spent {
		return 0
	}
	const tenth = 10
	return math.Round(float64(spent-rested)/float64(spent)*100*tenth) / tenth
}
