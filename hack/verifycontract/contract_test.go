package main

import (
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const twoClauses = "# comment\n\n## First\nD1.1.a | one thing\nA1 | another\n"

func sectionsOf(t *testing.T, text string) []section {
	t.Helper()
	s, err := parseClauses(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheEmbeddedListIsSound(t *testing.T) {
	sections, err := lists()
	if err != nil {
		t.Fatal(err)
	}
	promises, reported := 0, 0
	for _, s := range sections {
		for _, c := range s.clauses {
			if strings.HasPrefix(s.title, "Faults: ") {
				if reported++; !regexp.MustCompile(`^[A-K][0-9]{2}$`).MatchString(c.id) {
					t.Errorf("the fault %s has no identifier of two digits", c.id)
				}
				continue
			}
			promises++
		}
	}
	if promises < 200 || reported < 67 {
		t.Errorf("%d clauses and %d faults", promises, reported)
	}
}

func TestParseClausesRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":        "# only a comment\n",
		"no text":        "## S\nA1 |\n",
		"no identifier":  "## S\nfoo | bar\n",
		"a bar in text":  "## S\nA1 | a | b\n",
		"twice":          "## S\nA1 | a\nA1 | b\n",
		"before section": "A1 | a\n",
	} {
		if _, err := parseClauses(text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCheck(t *testing.T) {
	tree := fstest.MapFS{
		"pkg/x/x_test.go": {Data: []byte("package x\n\nfunc TestOne(t *testing.T) {}\n// func TestTwo(\nfunc FuzzThree(f *testing.F) {}\n")},
	}
	good := "| A1 | another | `pkg/x/x_test.go:TestOne` |\n"
	for _, tt := range []struct {
		name, document, fault string
		tested, open          int
	}{
		{name: "test and reason", document: good + "| D1.1.a | one thing | open: needs two clusters |\n", tested: 1, open: 1},
		{name: "two tests and a subtest", document: good + "| D1.1.a | one thing | `pkg/x/x_test.go:FuzzThree`, `pkg/x/x_test.go:TestOne/sub` |\n", tested: 2},
		{name: "missing clause", document: good, fault: "clause D1.1.a has no row", tested: 1},
		{name: "unknown clause", document: good + "| D1.1.a | one thing | open: needs two clusters |\n| Z9 | x | open: needs two clusters |\n", fault: "Z9 is not a clause", tested: 1, open: 1},
		{name: "twice", document: good + good + "| D1.1.a | one thing | open: needs two clusters |\n", fault: "has a row at line 1 already", tested: 1, open: 1},
		{name: "no such test", document: good + "| D1.1.a | one thing | `pkg/x/x_test.go:TestFour` |\n", fault: "has no TestFour", tested: 2},
		{name: "a comment is no test", document: good + "| D1.1.a | one thing | `pkg/x/x_test.go:TestTwo` |\n", fault: "has no TestTwo", tested: 2},
		{name: "prefix of a name", document: good + "| D1.1.a | one thing | `pkg/x/x_test.go:TestOn` |\n", fault: "has no TestOn", tested: 2},
		{name: "no such file", document: good + "| D1.1.a | one thing | `pkg/y/y_test.go:TestOne` |\n", fault: "pkg/y/y_test.go", tested: 2},
		{name: "outside the tree", document: good + "| D1.1.a | one thing | `../x_test.go:TestOne` |\n", fault: "../x_test.go", tested: 2},
		{name: "no test file", document: good + "| D1.1.a | one thing | `pkg/x/x.go:TestOne` |\n", fault: "is neither", tested: 2},
		{name: "neither", document: good + "| D1.1.a | one thing | soon |\n", fault: "is neither", tested: 2},
		{name: "empty", document: good + "| D1.1.a | one thing | |\n", fault: "is neither", tested: 2},
		{name: "open without reason", document: good + "| D1.1.a | one thing | open: |\n", fault: "without a reason", tested: 1, open: 1},
		{name: "other text", document: good + "| D1.1.a | one think | open: needs two clusters |\n", fault: "differs from clauses.txt", tested: 1, open: 1},
		{name: "four cells", document: good + "| D1.1.a | one thing | open: needs | two |\n", fault: "three cells", tested: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := check(tt.document, sectionsOf(t, twoClauses), tree)
			faults := strings.Join(got.faults, "\n")
			if tt.fault == "" && faults != "" || !strings.Contains(faults, tt.fault) {
				t.Errorf("faults %q, want %q", faults, tt.fault)
			}
			if got.tested != tt.tested || got.open != tt.open {
				t.Errorf("%d tested and %d open, want %d and %d", got.tested, got.open, tt.tested, tt.open)
			}
		})
	}
}

func TestRenderKeepsWhatRowsSay(t *testing.T) {
	old := "# Title\n\nText.\n\n" + tablesBegin + "\n\n| A1 | stale text | `pkg/x/x_test.go:TestOne` |\n| Z9 | gone | open: needs two clusters |\n"
	want := "# Title\n\nText.\n\n" + tablesBegin + "\n\n## First\n\n| id | clause | test |\n|---|---|---|\n" +
		"| D1.1.a | one thing | open: no test shows it yet |\n| A1 | another | `pkg/x/x_test.go:TestOne` |\n"
	got := render(old, sectionsOf(t, twoClauses))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if again := render(got, sectionsOf(t, twoClauses)); again != got {
		t.Errorf("a second update changes the document:\n%s", cmp.Diff(got, again))
	}
}
