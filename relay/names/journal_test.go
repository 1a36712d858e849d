package names

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// disk is a file in memory. Each byte that is written and each truncation is a step. After so many steps the process is dead:
// nothing more happens to the file.
type disk struct {
	content []byte
	left    int
	fails   bool // Truncate too
}

var errDead = errors.New("killed")

func (d *disk) ReadAt(into []byte, at int64) (int, error) {
	if at >= int64(len(d.content)) {
		return 0, io.EOF
	}
	count := copy(into, d.content[at:])
	if count < len(into) {
		return count, io.EOF
	}
	return count, nil
}

func (d *disk) WriteAt(data []byte, at int64) (int, error) {
	count := min(len(data), d.left)
	d.left -= count
	if missing := int(at) + count - len(d.content); missing > 0 {
		d.content = append(d.content, make([]byte, missing)...)
	}
	copy(d.content[at:], data[:count])
	if count < len(data) {
		return count, errDead
	}
	return count, nil
}

func (d *disk) Truncate(size int64) error {
	if d.left == 0 {
		return errDead
	}
	d.left--
	if d.fails {
		return errDead
	}
	d.content = append(d.content, make([]byte, max(0, int(size)-len(d.content)))...)[:size]
	return nil
}

func (d *disk) Close() error { return nil }

// endless is more than any test writes.
const endless = 1 << 30

func loaded(t *testing.T, on *disk, now func() time.Time) *Table {
	t.Helper()
	table, err := load(on, now)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// killedAtEachStep tells what is known after a change that was killed at each of its steps, and before and after it.
func killedAtEachStep(t *testing.T, content []byte, change func(*Table)) (before, after []Pair, found [][]Pair) {
	t.Helper()
	whole := &disk{content: slices.Clone(content), left: endless}
	table := loaded(t, whole, time.Now)
	before = table.All()
	whole.left = endless
	change(table)
	for steps := range endless - whole.left {
		on := &disk{content: slices.Clone(content), left: endless}
		killed := loaded(t, on, time.Now)
		on.left = steps
		change(killed)
		on.left = endless
		found = append(found, loaded(t, on, time.Now).All())
	}
	return before, table.All(), found
}

func journalOf(t *testing.T, count int) []byte {
	t.Helper()
	on := &disk{left: endless}
	table := loaded(t, on, time.Now)
	for i := range count {
		given(t, table, fmt.Sprintf("n%d.example", i))
	}
	return on.content
}

func TestAProcessThatIsKilledWhileItTakesOverHasTheOldNamesOrTheNewOnes(t *testing.T) {
	pairs := []Pair{{addressAt(2), "x.example"}, {addressAt(40000), "n3.example"}, {addressAt(1), "n0.example"}}
	for _, count := range []int{0, 2, 16} { // with less room at the beginning than the new lines need, and with more
		before, after, found := killedAtEachStep(t, journalOf(t, count), func(table *Table) { table.TakeOver(pairs) })
		news := 0
		for step, got := range found {
			isNew := reflect.DeepEqual(got, after)
			if !isNew && !reflect.DeepEqual(got, before) {
				t.Fatalf("killed at step %d of %d: %v", step, len(found), got)
			}
			if isNew {
				news++
			}
		}
		if count == 16 && news < 20 {
			t.Errorf("of %d steps only %d are after the mark", len(found), news)
		}
	}
}

func TestAProcessThatIsKilledWhileItWritesTheFileAnewLosesNothing(t *testing.T) {
	content := journalOf(t, 12)
	var last []Pair
	for range 3 { // also while a file is written that was written anew before
		before, after, found := killedAtEachStep(t, content, func(table *Table) {
			table.journal.rewrite(table.changes(), table.last)
		})
		for step, got := range found {
			if !reflect.DeepEqual(got, before) {
				t.Fatalf("killed at step %d of %d: %v", step, len(found), got)
			}
		}
		on := &disk{content: content, left: endless}
		table := loaded(t, on, time.Now)
		table.journal.rewrite(table.changes(), table.last)
		given(t, table, fmt.Sprintf("more%d.example", len(content)))
		content, last = on.content, after
	}
	if len(last) < 12 {
		t.Error(last)
	}
}

func TestAProcessThatIsKilledWhileItGivesAnAddressHasTheNameOrHasItNot(t *testing.T) {
	before, after, found := killedAtEachStep(t, journalOf(t, 5), func(table *Table) { table.AddressOf("a.example") })
	for step, got := range found {
		if !reflect.DeepEqual(got, before) && !reflect.DeepEqual(got, after) {
			t.Fatalf("killed at step %d: %v", step, got)
		}
	}
}

func TestAWriteThatFailsLeavesNothingBehind(t *testing.T) {
	for _, fails := range []bool{false, true} {
		on := &disk{left: endless}
		table := loaded(t, on, time.Now)
		given(t, table, "a.example")
		on.left, on.fails = 9, fails
		if _, ok := table.AddressOf("a-very-long-name.example"); ok {
			t.Error("an address was given that no file has")
		}
		on.left = 1
		if _, ok := table.AddressOf("b.example"); ok {
			t.Error("an address was given that no file has")
		}
		on.left, on.fails = endless, false
		given(t, table, "c.example")
		if got := loaded(t, on, time.Now).All(); !reflect.DeepEqual(got, table.All()) || len(got) != 2 {
			t.Errorf("%v in %q", got, on.content)
		}
	}
}

func TestAFileThatGetsTooLongIsWrittenAnew(t *testing.T) {
	time0 := &clock{time.Unix(1000, 0)}
	on := &disk{left: endless}
	table := loaded(t, on, time0.Now)
	most := 0
	for i := range 3 * linesMost / 2 {
		given(t, table, fmt.Sprintf("n%d", i))
		most = max(most, table.journal.lines)
		time0.now = time0.now.Add(time.Second)
	}
	if lines := strings.Count(string(on.content), "\n"); most > linesMost+2 || lines != table.journal.lines {
		t.Errorf("there were up to %d lines, and are %d of %d", most, lines, table.journal.lines)
	}
	if got := loaded(t, on, time.Now); !reflect.DeepEqual(got.All(), table.All()) || got.last != table.last {
		t.Error("other names came back")
	}
}

func TestLinesThatSayNothingAreSkipped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	text := "1 a.example\n2 b.example\nno line\n0 zero.example\n131071 end.example\n\n4\n1 c.example\n70 b.example\n3 unfini"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table := opened(t, path, time.Now)
	want := []Pair{{addressAt(1), "c.example"}, {addressAt(70), "b.example"}}
	if got := table.All(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if next := given(t, table, "d"); next != addressAt(71) {
		t.Errorf("the next address is %s", next)
	}
	written, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(string(written), "70 b.example\n71 d\n") {
		t.Errorf("%q, %v", written, err)
	}
}

func FuzzJournal(f *testing.F) {
	for _, text := range []string{
		"1 a.example\n2 b.example\n", "1 a\n-1\n2 b\n=1 2\n", ">1 a\n>2 b\n=2 9\n-1\n3 c", ">1 a\n=2 9\n", "=0 0\n",
		"=0 1\n", "-\n>\n=\n",
		"1 a\r\n", "\xff\x00", "99999999999 a\n", "1  a\n", ">1 a\n=-1 5\n", ">-1\n=1 5\n", "+1 a\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		on := &disk{content: slices.Clone(data), left: endless}
		table := loaded(t, on, time.Now)
		first := table.All()
		if again := loaded(t, on, time.Now).All(); !reflect.DeepEqual(first, again) {
			t.Fatalf("%v, then %v", first, again)
		}
		address, ok := table.AddressOf("new.example")
		if !ok {
			t.Fatal("a new name got no address")
		}
		again := loaded(t, on, time.Now)
		if name, _ := again.NameAt(address); name != "new.example" {
			t.Fatalf("%s is %q after a restart", address, name)
		}
		for _, pair := range first {
			if name, _ := again.NameAt(pair.Address); name != pair.Name && pair.Name != "new.example" {
				t.Fatalf("%s is %q, not %q", pair.Address, name, pair.Name)
			}
		}
		if table.journal.rewrite(table.changes(), table.last) != nil || !reflect.DeepEqual(loaded(t, on, time.Now).All(), table.All()) {
			t.Fatal("written anew it says something else")
		}
	})
}
