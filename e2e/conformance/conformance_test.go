package conformance

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// minimum of the sample, and every sig of the list in it.
func TestSample(t *testing.T) {
	all, some := Specs(), Sample()
	if len(all) != 279 {
		t.Errorf("%d specs, want 279", len(all))
	}
	if len(some) < 40 {
		t.Errorf("the sample has %d specs", len(some))
	}
	sigs := map[string]bool{}
	for _, name := range some {
		if !slices.Contains(all, name) {
			t.Errorf("not a spec of the list: %s", name)
		}
		sigs[sig(name)] = true
	}
	for _, name := range all {
		if !sigs[sig(name)] {
			t.Errorf("no spec of %s in the sample", sig(name))
			sigs[sig(name)] = true
		}
	}
}

// Each spec that differs is explained, with a clause of the contract.
func TestDiffering(t *testing.T) {
	doc, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(Differing()); n > 15 {
		t.Errorf("%d specs differ", n)
	}
	for _, name := range Differing() {
		if !slices.Contains(Specs(), name) {
			t.Errorf("not a spec of the list: %s", name)
		}
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \| D[0-9.a-z, D]+ \| .+ \|$`)
		if !row.Match(doc) {
			t.Errorf("docs/conformance.md does not say why this differs: %s", name)
		}
	}
}

// The pattern selects these specs and no other, whatever signs are in them.
func TestFocus(t *testing.T) {
	all := Specs()
	chosen := []string{all[0], all[100], all[200]}
	re := regexp.MustCompile(focus(chosen))
	for _, name := range all {
		if re.MatchString("Kubernetes e2e suite "+name) != slices.Contains(chosen, name) {
			t.Errorf("chosen wrongly: %s", name)
		}
	}
}

func TestMatching(t *testing.T) {
	names := []string{"a one", "a two", "b one"}
	for _, c := range []struct {
		focus, skip string
		want        []string
	}{
		{want: names},
		{focus: "^a", want: names[:2]},
		{skip: "one", want: names[1:2]},
		{focus: "one", skip: "^b", want: names[:1]},
	} {
		got, err := Matching(names, c.focus, c.skip)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q without %q: %v, %v", c.focus, c.skip, got, err)
		}
	}
	if _, err := Matching(names, "(", ""); err == nil {
		t.Error("a broken pattern is accepted")
	}
}

func TestJudge(t *testing.T) {
	r := Results{}
	add := func(report string) {
		t.Helper()
		if err := r.addReport([]byte(report)); err != nil {
			t.Fatal(err)
		}
	}
	spec := func(name, state string) string {
		return `{"ContainerHierarchyTexts":["[sig-x] A"],"LeafNodeText":"` + name + `","LeafNodeType":"It","State":"` + state + `","Failure":{"Message":"why"}}`
	}
	add(`[{"SpecReports":[{"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"},` + spec("good", "passed") + `,` + spec("flaky", "failed") + `,` +
		spec("bad", "failed") + `,` + spec("cut", "interrupted") + `,` + spec("other", "skipped") + `]}]`)
	names := []string{"[sig-x] A good", "[sig-x] A flaky", "[sig-x] A bad", "[sig-x] A cut"}
	if got, want := r.Pending(names), []string{names[3], names[1], names[2]}; !slices.Equal(got, want) {
		t.Errorf("pending %v, want %v", got, want)
	}
	add(`[{"SpecReports":[` + spec("flaky", "passed") + `,` + spec("bad", "panicked") + `,` + spec("cut", "passed") + `]}]`)
	add(`[{"SpecReports":[` + spec("bad", "failed") + `]}]`)
	v := r.Judge(names)
	if !slices.Equal(v.Passed, []string{names[0], names[3]}) || !slices.Equal(v.Flaky, names[1:2]) || !slices.Equal(v.Failed, names[2:3]) || v.OK() {
		t.Errorf("verdict %+v", v)
	}
	if pending := r.Pending(names); len(pending) != 0 {
		t.Errorf("still pending after %d attempts: %v", Attempts, pending)
	}
}

func TestProgress(t *testing.T) {
	var lines []string
	p := newProgress(2, func(_ string, args ...any) { lines = append(lines, args[2].(string)+" "+args[3].(string)) })
	for _, chunk := range []string{"noise\n• [1.5", " seconds]\n[sig-x] one\nmore\n", "• [FAILED] [2.0 seconds]\n[sig-x] two\n"} {
		if _, err := p.Write([]byte(chunk)); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(lines, []string{"ok   1.5s [sig-x] one", "FAIL 2.0s [sig-x] two"}) {
		t.Errorf("%q", lines)
	}
}
