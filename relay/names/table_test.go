package names

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// clock is the time of a test.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func opened(t *testing.T, path string, now func() time.Time) *Table {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Open(file, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

func made(t *testing.T, now func() time.Time) (*Table, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "names")
	return opened(t, path, now), path
}

func given(t *testing.T, table *Table, name string) netip.Addr {
	t.Helper()
	address, ok := table.AddressOf(name)
	if !ok {
		t.Fatalf("%s got no address", name)
	}
	return address
}

func fill(t *testing.T, table *Table, prefix string) {
	t.Helper()
	for i := range MostNames {
		given(t, table, fmt.Sprintf("%s%d.example", prefix, i))
	}
}

func TestANameKeepsItsAddressAndLeadsBack(t *testing.T) {
	table, _ := made(t, time.Now)
	address := given(t, table, "a.example")
	if !IsSynthetic(address) || address != netip.MustParseAddr("198.18.0.1") {
		t.Errorf("it is %s", address)
	}
	if again := given(t, table, "a.example"); again != address {
		t.Errorf("%s and %s", address, again)
	}
	if other := given(t, table, "b.example"); other == address {
		t.Error("two names have one address")
	}
	for _, known := range []netip.Addr{address, netip.AddrFrom16(address.As16())} {
		if name, ok := table.NameAt(known); !ok || name != "a.example" {
			t.Errorf("%s leads to %q, %v", known, name, ok)
		}
	}
}

func TestWhatStandsForNothingHasNoName(t *testing.T) {
	table, _ := made(t, time.Now)
	given(t, table, "a.example")
	for _, text := range []string{
		"198.18.0.0", "198.18.0.2", "198.19.255.254", "198.19.255.255", "198.20.0.1", "198.17.255.255", "8.8.8.8", "::1", "::",
	} {
		if name, ok := table.NameAt(netip.MustParseAddr(text)); ok || name != "" {
			t.Errorf("%s is %q", text, name)
		}
	}
	if name, ok := table.NameAt(netip.Addr{}); ok || name != "" {
		t.Errorf("no address is %q", name)
	}
}

func TestAllNamesComeInTheOrderOfTheirUse(t *testing.T) {
	table, _ := made(t, time.Now)
	first := given(t, table, "a.example")
	given(t, table, "b.example")
	given(t, table, "c.example")
	given(t, table, "b.example")
	table.NameAt(first)
	if got := namesOf(table); !reflect.DeepEqual(got, []string{"c.example", "b.example", "a.example"}) {
		t.Error(got)
	}
}

func namesOf(table *Table) []string {
	var got []string
	for _, pair := range table.All() {
		got = append(got, pair.Name)
	}
	return got
}

func TestANameThatWasUsedWithinTheHourKeepsItsAddressAndTheOldestGivesWayAfterIt(t *testing.T) {
	time0 := &clock{time.Unix(1000, 0)}
	table, path := made(t, time0.Now)
	fill(t, table, "n")
	oldest, second := table.All()[0], table.All()[1]
	time0.now = time0.now.Add(keptFor - time.Second)
	if _, ok := table.AddressOf("new.example"); ok {
		t.Error("a name that was used within the hour gave way")
	}
	table.NameAt(oldest.Address)
	time0.now = time0.now.Add(time.Second)
	address := given(t, table, "new.example")
	if _, ok := table.NameAt(second.Address); ok {
		t.Error("the oldest name is still there")
	}
	if name, _ := table.NameAt(oldest.Address); name != oldest.Name {
		t.Error("a name that was used gave way")
	}
	if want := addressAt(MostNames + 1); address != want {
		t.Errorf("the address is %s, not the next unused one, %s", address, want)
	}
	again := opened(t, path, time0.Now)
	if got := len(again.All()); got != MostNames {
		t.Errorf("after a restart there are %d", got)
	}
	if _, ok := again.NameAt(second.Address); ok {
		t.Error("after a restart the name that gave way is back")
	}
}

func TestAnAddressStandsForAnotherNameOnlyAfterAllHaveBeenUsedAlsoAcrossRestarts(t *testing.T) {
	time0 := &clock{time.Unix(1000, 0)}
	on := &disk{left: endless}
	table := loaded(t, on, time0.Now)
	stood := map[netip.Addr]bool{}
	for i := range lastOffset {
		name := fmt.Sprintf("n%d", i)
		address, ok := table.AddressOf(name)
		if !ok || stood[address] {
			t.Fatalf("%s got %s, %v", name, address, ok)
		}
		stood[address] = true
		if i%4 == 0 { // so that the order of use is not that in which they were given
			table.NameAt(addressAt(uint32(max(1, i-MostNames/2))))
		}
		if i%13001 == 0 {
			table = loaded(t, on, time0.Now)
		}
		time0.now = time0.now.Add(keptFor)
	}
	if again := given(t, table, "again"); !stood[again] {
		t.Errorf("%s is not one of the range", again)
	}
	if size := len(on.content); size > 1<<20 {
		t.Errorf("the file has %d bytes", size)
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestTakingOverHoldsExactlyTheseNames(t *testing.T) {
	table, path := made(t, time.Now)
	before := given(t, table, "old.example")
	pairs := []Pair{
		{netip.MustParseAddr("198.18.0.9"), "nine.example"},
		{netip.MustParseAddr("8.8.8.8"), "outside.example"},
		{netip.MustParseAddr("198.18.0.7"), "seven.example"},
		{netip.MustParseAddr("198.18.0.7"), "last.example"},
		{netip.MustParseAddr("198.18.0.8"), "two\nlines"},
	}
	if err := table.TakeOver(pairs); err != nil {
		t.Fatal(err)
	}
	want := []Pair{pairs[0], pairs[3]}
	if got := table.All(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if _, ok := table.NameAt(before); ok {
		t.Error("an old name is still there")
	}
	if next := given(t, table, "next.example"); next != netip.MustParseAddr("198.18.0.10") {
		t.Errorf("the next address is %s, which may have stood for another name", next)
	}
	if got := opened(t, path, time.Now).All(); !reflect.DeepEqual(got, table.All()) {
		t.Errorf("after a restart: %v", got)
	}
}

func TestOfTooManyNamesTheMostRecentAreTakenOver(t *testing.T) {
	table, path := made(t, time.Now)
	var pairs []Pair
	for i := range MostNames + 5 {
		pairs = append(pairs, Pair{addressAt(uint32(i + 1)), fmt.Sprintf("n%d", i)})
	}
	for range 20 {
		if err := table.TakeOver(pairs); err != nil {
			t.Fatal(err)
		}
	}
	if got := table.All(); !reflect.DeepEqual(got, pairs[5:]) {
		t.Errorf("%d names, the first of them %v", len(got), got[0])
	}
	if size := sizeOf(t, path); size > 400_000 {
		t.Errorf("the file has %d bytes", size)
	}
	if err := table.TakeOver(nil); err != nil || len(table.All()) != 0 || len(opened(t, path, time.Now).All()) != 0 {
		t.Errorf("%v, and names are left", err)
	}
}

func TestAGuestThatAsksForNothingCostsNearlyNothing(t *testing.T) {
	table, _ := made(t, time.Now)
	if table.byName != nil || table.used != nil {
		t.Error("maps are made before there is a name")
	}
	if got := table.All(); len(got) != 0 {
		t.Error(got)
	}
}

func TestATableIsSafeForSeveralGoroutines(t *testing.T) {
	table, path := made(t, time.Now)
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for range 300 {
				name := fmt.Sprintf("n%d", rand.IntN(200))
				address, ok := table.AddressOf(name)
				if got, known := table.NameAt(address); !ok || !known || got != name {
					t.Errorf("%s has %s of %s", name, address, got)
				}
				if worker == 0 {
					table.All()
				}
			}
		})
	}
	all.Wait()
	if got := len(opened(t, path, time.Now).All()); got != len(table.All()) {
		t.Errorf("%d names were written", got)
	}
}

func TestAClosedTableKnowsItsNamesAndGivesNoAddress(t *testing.T) {
	table, _ := made(t, time.Now)
	address := given(t, table, "a.example")
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	if name, _ := table.NameAt(address); name != "a.example" {
		t.Error(name)
	}
	if _, ok := table.AddressOf("b.example"); ok || len(table.All()) != 1 {
		t.Error("an address was given that no file has")
	}
	if err := table.TakeOver(nil); err == nil || len(table.All()) != 1 {
		t.Error("names were taken over that no file has")
	}
}

func TestAFileThatCannotBeWrittenAtAnyPlaceIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	for _, flags := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_APPEND} {
		file, err := os.OpenFile(path, flags|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if table, err := Open(file, time.Now); err == nil || table != nil {
			t.Errorf("%#x is taken", flags)
		}
		if err := file.Close(); err == nil {
			t.Error("the file was left open")
		}
	}
}

func TestWhatIsNoWordGetsNoAddress(t *testing.T) {
	table, path := made(t, time.Now)
	for _, name := range []string{"", "a b", "a\nb", "a\x00", "\x7f", "a\tb"} {
		if _, ok := table.AddressOf(name); ok {
			t.Errorf("%q got an address", name)
		}
	}
	if text, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(text)) != "" {
		t.Errorf("%q, %v", text, err)
	}
}
