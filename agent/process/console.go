package process

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const describedMost = 200

func consoleLine(at time.Time, pid int, what string) string {
	return fmt.Sprintf("%s program %d %s\n", at.UTC().Format(time.RFC3339), pid, what)
}

// described is an argument list for people: one line, quoted where needed, cut when long.
func described(argv []string) string {
	var line strings.Builder
	for i, argument := range argv {
		if i > 0 {
			line.WriteByte(' ')
		}
		if line.Len() > describedMost {
			line.WriteString("...")
			break
		}
		line.WriteString(quoted(argument))
	}
	return line.String()
}

func quoted(argument string) string {
	short := argument
	if len(short) > describedMost {
		short = strings.ToValidUTF8(short[:describedMost], "") + "..."
	}
	shown := strconv.Quote(short)
	if shown == `"`+short+`"` && short != "" && !strings.Contains(short, " ") {
		return short
	}
	return shown
}

func (e End) describe() string {
	switch {
	case e.TimedOut:
		return "ran past its timeout and was killed"
	case e.Signal != 0:
		return fmt.Sprintf("ended by signal %d", e.Signal)
	}
	return fmt.Sprintf("ended with %d", e.ExitCode)
}
