package system

import (
	"os"
	"strconv"
	"strings"
)

// Usage counts the guest's processes and their resident memory in bytes, without the agent.
func Usage() (processes int, memory int64) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0
	}
	page := int64(os.Getpagesize())
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/statm")
		if err != nil {
			continue
		}
		processes++
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			if pages, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				memory += pages * page
			}
		}
	}
	return processes, memory
}
