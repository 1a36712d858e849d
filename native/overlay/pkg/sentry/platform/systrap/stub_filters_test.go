package systrap

import (
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
)

func TestAFilledInProgramIsTheOneThatIsCompiled(t *testing.T) {
	start, end, sysmsg := stubStart, stubROMapEnd, stubSysmsgStart
	defer func() { stubStart, stubROMapEnd, stubSysmsgStart = start, end, sysmsg }()
	programs, err := PrecompiledPrograms()
	if err != nil {
		t.Fatal(err)
	}
	stubStart, stubROMapEnd, stubSysmsgStart = 0x7fff12345000, 0x7fff12349000, 0x7fff12346000
	values := map[string]precompiledseccomp.Values{
		processFilter: processAddresses(), threadFilter: threadAddresses(),
	}
	builds := map[string]*seccomp.Program{
		processFilter: processProgram(seccomp.Trap), threadFilter: threadProgram(stubSysmsgStart),
	}
	if len(programs) != len(builds) {
		t.Fatalf("%d programs", len(programs))
	}
	for _, program := range programs {
		filled, err := program.RenderInstructions(values[program.Name])
		if err != nil {
			t.Errorf("%s: %v", program.Name, err)
			continue
		}
		compiled, _, err := builds[program.Name].Build()
		if err != nil {
			t.Errorf("%s: %v", program.Name, err)
		}
		if !slices.Equal(filled, compiled) {
			t.Errorf("%s: %d instructions filled in, %d compiled", program.Name, len(filled), len(compiled))
		}
	}
}
