// Command fillseccomp fills the seccomp programs into a vendored gVisor, so that runsc need not compile one at
// each start. Upstream's own build generates them; the Go module comes with the table empty.
//
//	go run ./fillseccomp vendor/gvisor.dev/gvisor/runsc
//
// A program's key contains facts of the build, so build this with the same tags and CGO_ENABLED as runsc.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform/systrap"
	sentry "gvisor.dev/gvisor/runsc/boot/filter/config"
	gofer "gvisor.dev/gvisor/runsc/fsgofer/filter/config"
)

const (
	tableEnd = "\tprecompiledPrograms = programs\n"
	switchOn = "const PrecompilationDisabledAtBuildTime = false"
)

var switchOff = strings.Replace(switchOn, "false", "true", 1)

func main() {
	for path, compile := range map[string]func() ([]precompiledseccomp.Program, error){
		"boot/filter/filter_precompiled.go":              sentry.PrecompiledPrograms,
		"fsgofer/filter/filter_precompiled.go":           gofer.PrecompiledPrograms,
		"../pkg/sentry/platform/systrap/stub_filters.go": systrap.PrecompiledPrograms,
	} {
		if err := fill(filepath.Join(os.Args[1], path), compile); err != nil {
			log.Fatal(err)
		}
	}
}

// isWanted returns whether a sandbox can ask for the program with this name. Those for proxied devices are many and large,
// and no atoll has such a device. Those of the platform ptrace contain the process that compiled them.
func isWanted(name string) bool {
	other := strings.Contains(name, "Platform=") && !strings.Contains(name, `Platform="systrap"`)
	return !other && !strings.Contains(name, "Proxy=true")
}

// fill rewrites the Go file at path, adding every program that a sandbox without GPUs, TPUs and RDMA can ask for.
func fill(path string, compile func() ([]precompiledseccomp.Program, error)) error {
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	programs, err := compile()
	if err != nil {
		return fmt.Errorf("compile the programs: %w", err)
	}
	var table strings.Builder
	for _, program := range programs {
		if isWanted(program.Name) {
			table.WriteString(program.Registration("\t", "precompiledseccomp", "programs"))
		}
	}
	text := string(source)
	if table.Len() == 0 || strings.Count(text, tableEnd) != 1 || strings.Count(text, switchOff) != 1 {
		return fmt.Errorf("%s is not the file that this program was made for", path)
	}
	text = strings.Replace(text, tableEnd, table.String()+tableEnd, 1)
	text = strings.Replace(text, switchOff, switchOn, 1)
	return os.WriteFile(path, []byte(text), 0o644)
}
