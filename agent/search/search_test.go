package search

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"atoll/agent/user"
)

func tree(t *testing.T, contents map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range contents {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func query(t *testing.T, pattern string, globs ...string) Query {
	t.Helper()
	compiled, err := NewPattern(pattern, false, false)
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := NewGlobs(globs)
	if err != nil {
		t.Fatal(err)
	}
	return Query{Pattern: compiled, Globs: wanted, MaxMatches: 1000, MaxBytes: 1 << 20}
}

// found runs a search and returns `PATH:LINE:COLUMN:TEXT` of each match, in order.
func found(t *testing.T, q Query, root string) ([]string, Summary) {
	t.Helper()
	var mu sync.Mutex
	lines := []string{}
	summary, err := q.Run(context.Background(), user.Agent(), root, func(matches []Match) {
		mu.Lock()
		defer mu.Unlock()
		for _, one := range matches {
			path := strings.TrimPrefix(strings.TrimPrefix(one.Path, root), "/")
			lines = append(lines, fmt.Sprintf("%s:%d:%d:%s", path, one.Line, one.Column, one.Text))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return lines, summary
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
}

func TestLinesAreFoundWithTheirPlace(t *testing.T) {
	root := tree(t, map[string]string{
		"a.go": "package a\n\nfunc Tide() {}\n", "b/c/d.py": "x\r\n  é Tide\r\nTide", "b/binary": "Tide\x00", "empty": "",
		".hidden": "Tide", ".git/config": "Tide", "b/.x/y": "Tide",
	})
	got, summary := found(t, query(t, "Tide"), root)
	expect(t, got, "a.go:3:6:func Tide() {}", "b/c/d.py:2:5:  é Tide", "b/c/d.py:3:1:Tide")
	if summary != (Summary{Files: 4, Matches: 3}) {
		t.Fatal(summary)
	}
	q := query(t, "Tide", "*.py", "config")
	q.Hidden = true
	got, _ = found(t, q, root)
	expect(t, got, ".git/config:1:1:Tide", "b/c/d.py:2:5:  é Tide", "b/c/d.py:3:1:Tide")
	got, _ = found(t, query(t, "T"), filepath.Join(root, "a.go"))
	expect(t, got, ":3:6:func Tide() {}")
}

func TestGlobsChooseFiles(t *testing.T) {
	for _, each := range []struct {
		globs []string
		want  []string
	}{
		{[]string{"*.go"}, []string{"a.go", "b/a.go", "b/c/a.go"}},
		{[]string{"/*.go"}, []string{"a.go"}},
		{[]string{"b/*.go"}, []string{"b/a.go"}},
		{[]string{"b/**/*.go"}, []string{"b/a.go", "b/c/a.go"}},
		{[]string{"**/c/**"}, []string{"b/c/a.go", "b/c/a.py"}},
		{[]string{"a.{py,rs}"}, []string{"b/c/a.py", "r.d/a.rs"}},
		{[]string{"a.[!g]*"}, []string{"b/c/a.py", "r.d/a.rs"}},
		{[]string{"?.go", "!c"}, []string{"a.go", "b/a.go"}},
		{[]string{"!b/", "!*.rs"}, []string{"a.go", "r.d/x]y"}},
		{[]string{`x\]*`}, []string{"r.d/x]y"}},
		{[]string{`x[]]y`}, []string{"r.d/x]y"}},
		{[]string{"A.go"}, []string{}},
	} {
		root := tree(t, map[string]string{"a.go": "x", "b/a.go": "x", "b/c/a.go": "x", "b/c/a.py": "x", "r.d/a.rs": "x", "r.d/x]y": "x"})
		got, _ := found(t, query(t, "x", each.globs...), root)
		for i := range got {
			got[i], _, _ = strings.Cut(got[i], ":")
		}
		if !slices.Equal(got, each.want) {
			t.Errorf("%q finds %q, not %q", each.globs, got, each.want)
		}
	}
}

func TestWhatIsNoPatternIsRefused(t *testing.T) {
	for _, pattern := range []string{"", "(", "a\nb", `a\nb`, `\n`, strings.Repeat("x", patternMost+1), "(a{1000}){1000}"} {
		if _, err := NewPattern(pattern, false, false); err == nil {
			t.Errorf("%.20q is a pattern", pattern)
		}
	}
	for _, glob := range []string{"", "!", "[a", "{a", strings.Repeat("x", globMost+1)} {
		if _, err := NewGlobs([]string{glob}); err == nil {
			t.Errorf("%.20q is a glob", glob)
		}
	}
}

// naive is what a search means: each line by itself.
func naive(expression *regexp.Regexp, text string) []string {
	var lines []string
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if place := expression.FindStringIndex(line); place != nil && text != "" {
			lines = append(lines, fmt.Sprintf("f:%d:%d:%s", i+1, place[0]+1, line))
		}
	}
	return lines
}

func TestEveryWayOfLookingFindsTheSameAsLineByLine(t *testing.T) {
	text := strings.Repeat("The tide turns\nÜber Kelvin \u212a and strasse\n\n  foo(bar) baz42\nend\n", 100) + "the last without a break"
	root := tree(t, map[string]string{"f": text})
	for _, pattern := range []string{
		"tide", "foo|baz|last", `ba[rz]`, `^The`, `turns$`, `^$`, `$`, `\bbar\b`, `[a-z]+\d+`, `\s+foo`, `[^x]*`, `(tide|foo).*[a-z]`,
		`(?:foo)?bar`, `z{0,3}42`, `(la)+st`, `(?i)KELVIN`, `(?i)STRASSE`, `(?i:TIDE)|foo`, `(?i)k`, `Ü`, `.`, `x*`, `\Aend\z`, `(?s)foo.*baz`,
		`(tide|) turns`, `no such`, `[0-9]{2}`, `[A-Z]\w+ \d?`, `[é-\x{10ffff}]`, `(?i)[k-l]v`, `[^\x00-\x7f]b`, `([a-z]{3}\d?[^x]){3,9}\)`, `[[:upper:]]ber`, `\W+$`,
	} {
		for _, ignoreCase := range []bool{false, true} {
			compiled, err := NewPattern(pattern, false, ignoreCase)
			if err != nil {
				t.Fatal(err)
			}
			q := Query{Pattern: compiled, Globs: &Globs{}, MaxMatches: 100_000, MaxBytes: 1 << 30}
			got, _ := found(t, q, root)
			flags := ""
			if ignoreCase {
				flags = "(?i)"
			}
			want := naive(regexp.MustCompile(flags+pattern), text)
			columns := regexp.MustCompile(`^(f:\d+):\d+:`)
			for i := range want {
				want[i] = columns.ReplaceAllString(want[i], "$1:")
			}
			for i := range got {
				got[i] = columns.ReplaceAllString(got[i], "$1:")
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%q (ignoring case: %t) finds %d lines, not %d", pattern, ignoreCase, len(got), len(want))
			}
		}
	}
}

func TestALiteralIsNoExpression(t *testing.T) {
	compiled, err := NewPattern("a.*(", true, true)
	if err != nil {
		t.Fatal(err)
	}
	root := tree(t, map[string]string{"f": "A.*(\naxx(\n"})
	got, _ := found(t, Query{Pattern: compiled, Globs: &Globs{}, MaxMatches: 10, MaxBytes: 1000}, root)
	expect(t, got, "f:1:1:A.*(")
}

func TestLongLinesAndBigFilesAreSearchedByPieces(t *testing.T) {
	long := strings.Repeat("y", 3*pieceBytes)
	filler := strings.Repeat("line\n", 2*pieceBytes/5)
	root := tree(t, map[string]string{"f": filler + "needle one\n" + long + "\n" + filler + "two needle"})
	got, _ := found(t, query(t, "needle"), root)
	lines := 2 * pieceBytes / 5
	expect(t, got, fmt.Sprintf("f:%d:1:needle one", lines+1), fmt.Sprintf("f:%d:5:two needle", 2*lines+3))

	root = tree(t, map[string]string{"g": strings.Repeat("y", 5000) + "needle" + strings.Repeat("z", 5000)})
	got, _ = found(t, query(t, "needle"), root)
	if len(got) != 1 || len(got[0]) > TextMost+20 || !strings.Contains(got[0], "needle") || !strings.HasPrefix(got[0], "g:1:5001:") {
		t.Fatal(got)
	}
}

func TestASearchEndsAtItsBounds(t *testing.T) {
	contents := map[string]string{}
	for i := range 200 {
		contents[fmt.Sprintf("%d/%d", i%7, i)] = strings.Repeat("tide\n", 100)
	}
	root := tree(t, contents)
	q := query(t, "tide")
	got, summary := found(t, q, root)
	if len(got) != 1000 || !summary.Truncated || summary.Matches != 1000 {
		t.Fatal(len(got), summary)
	}
	q.MaxMatches, q.MaxBytes = 100_000, 1000
	if got, summary = found(t, q, root); len(got) > 100 || !summary.Truncated {
		t.Fatal(len(got), summary)
	}
	q.MaxBytes = 1 << 30
	if got, summary = found(t, q, root); len(got) != 20_000 || summary.Truncated || summary.Files != 200 {
		t.Fatal(len(got), summary)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if summary, err := q.Run(ctx, user.Agent(), root, func([]Match) {}); err != nil || !summary.Truncated {
		t.Fatal(summary, err)
	}
}

func TestLinksPipesAndWhatIsMissingAreLeftOut(t *testing.T) {
	root := tree(t, map[string]string{"real/f": "tide"})
	for _, link := range []string{"link", "broken"} {
		if err := os.Symlink(map[string]string{"link": "real", "broken": "nosuch"}[link], filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := found(t, query(t, "tide"), root)
	expect(t, got, "real/f:1:1:tide")
	got, _ = found(t, query(t, "tide"), filepath.Join(root, "link"))
	expect(t, got, "f:1:1:tide")
	if _, err := query(t, "x").Run(context.Background(), user.Agent(), filepath.Join(root, "nosuch"), nil); err == nil {
		t.Fatal("a missing directory was searched")
	}
	if _, err := query(t, "x").Run(context.Background(), user.Agent(), "/dev/null", nil); err == nil {
		t.Fatal("a device was searched")
	}
}
