package process

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// console may be written by several processes at once.
type console struct {
	mu   sync.Mutex
	text strings.Builder
}

func (c *console) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(data)
}

func TestConsoleTellsOfAProgramsStartAndEnd(t *testing.T) {
	told := &console{}
	table().Console = told
	spec := shell("exit 3")
	spec.Env = append(spec.Env, "TOKEN=secret")
	p, f := start(t, spec)
	result(t, f)
	told.mu.Lock()
	defer told.mu.Unlock()
	text := told.text.String()
	for _, wanted := range []string{`program %d started: sh -c "exit 3"`, "program %d ended with 3"} {
		if wanted = fmt.Sprintf(wanted, p.PID); !strings.Contains(text, wanted+"\n") {
			t.Errorf("no %q in %q", wanted, text)
		}
	}
	if strings.Contains(text, "secret") {
		t.Errorf("the environment is in %q", text)
	}
}

func TestDescribedArgumentsAreOneLineOfBoundedLength(t *testing.T) {
	if got := described([]string{"echo", "a\nb", "", "\x1b[31m", "ü"}); got != `echo "a\nb" "" "\x1b[31m" ü` {
		t.Fatal(got)
	}
	many := make([]string, 5000)
	for i := range many {
		many[i] = strings.Repeat("x", 5000)
	}
	if got := described(many); len(got) > 3*describedMost {
		t.Fatalf("%d bytes", len(got))
	}
}
