package systrap

import (
	"gvisor.dev/gvisor/pkg/bpf"
	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	"gvisor.dev/gvisor/pkg/sync"
)

// PrecompilationDisabledAtBuildTime tells whether there are no programs here.
const PrecompilationDisabledAtBuildTime = true

const (
	processFilter = "process"
	threadFilter  = "thread"
)

var (
	precompiledPrograms map[string]precompiledseccomp.Program
	registerOnce        sync.Once
)

func registerPrograms() {
	programs := make(map[string]precompiledseccomp.Program)
	precompiledPrograms = programs
}

// filterInstructions returns the program of this name, for the addresses in values, or that which build returns when it is not
// precompiled.
func filterInstructions(name string, values precompiledseccomp.Values, build func() *seccomp.Program) ([]bpf.Instruction, error) {
	registerOnce.Do(registerPrograms)
	if program, ok := precompiledPrograms[name]; ok {
		return program.RenderInstructions(values)
	}
	instrs, _, err := build().Build()
	return instrs, err
}

func processAddresses() precompiledseccomp.Values {
	values := precompiledseccomp.Values{"length": uint32(stubROMapEnd - stubStart)}
	values.SetUint64("start", uint64(stubStart))
	return values
}

func threadAddresses() precompiledseccomp.Values {
	values := precompiledseccomp.Values{}
	values.SetUint64("start", uint64(stubStart))
	values.SetUint64("code", uint64(stubSysmsgStart))
	return values
}

// PrecompiledPrograms compiles the programs. It is not for a process that runs guests.
func PrecompiledPrograms() ([]precompiledseccomp.Program, error) {
	process, err := precompiledseccomp.Precompile(processFilter, []string{"length", "start_high32bits", "start_low32bits"},
		func(values precompiledseccomp.Values) *seccomp.Program {
			stubStart = uintptr(values.GetUint64("start"))
			stubROMapEnd = stubStart + uintptr(values["length"])
			return processProgram(seccomp.Trap)
		})
	if err != nil {
		return nil, err
	}
	names := []string{"start_high32bits", "start_low32bits", "code_high32bits", "code_low32bits"}
	thread, err := precompiledseccomp.Precompile(threadFilter, names, func(values precompiledseccomp.Values) *seccomp.Program {
		stubStart = uintptr(values.GetUint64("start"))
		return threadProgram(uintptr(values.GetUint64("code")))
	})
	return []precompiledseccomp.Program{process, thread}, err
}
