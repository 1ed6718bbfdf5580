package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Attempt is one run of one spec.
type Attempt struct {
	Passed  bool          `json:"passed"`
	Took    time.Duration `json:"took"`
	Failure string        `json:"failure,omitempty"`
}

// Results are the attempts of each spec, in the order in which they were made.
type Results map[string][]Attempt

// Verdict sorts specs by what their attempts say.
type Verdict struct {
	Passed, Flaky, Failed, Differ, NotRun []string
}

// Attempts is how often a spec that fails is tried.
const Attempts = 3

// Judge sorts the named specs: passed at once, passed after a failure, failed
// in every attempt, failed as documented, not run.
func (r Results) Judge(names []string) Verdict {
	var v Verdict
	for _, name := range names {
		attempts := r[name]
		passed := slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Passed })
		switch {
		case len(attempts) == 0:
			v.NotRun = append(v.NotRun, name)
		case attempts[0].Passed:
			v.Passed = append(v.Passed, name)
		case passed:
			v.Flaky = append(v.Flaky, name)
		case slices.Contains(Differing(), name):
			v.Differ = append(v.Differ, name)
		default:
			v.Failed = append(v.Failed, name)
		}
	}
	return v
}

// Pending are the named specs that need another attempt: those not run first.
func (r Results) Pending(names []string) []string {
	v := r.Judge(names)
	return append(v.NotRun, slices.DeleteFunc(v.Failed, func(name string) bool { return len(r[name]) >= Attempts })...)
}

// OK says that every spec was run and passed in one attempt at least, or is
// one that differs.
func (v Verdict) OK() bool { return len(v.Failed) == 0 && len(v.NotRun) == 0 }

// maxNamed bounds how many specs of a group are named.
const maxNamed = 50

// String is the count and the names of all that did not simply pass.
func (v Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d passed, %d flaky, %d failed, %d differ as documented, %d not run\n",
		len(v.Passed), len(v.Flaky), len(v.Failed), len(v.Differ), len(v.NotRun))
	for _, group := range []struct {
		label string
		names []string
	}{{"flaky", v.Flaky}, {"failed", v.Failed}, {"differs", v.Differ}, {"not run", v.NotRun}} {
		if len(group.names) > maxNamed {
			fmt.Fprintf(&b, "  %s: %s and %d more\n", group.label, group.names[0], len(group.names)-1)
			continue
		}
		for _, name := range group.names {
			fmt.Fprintf(&b, "  %s: %s\n", group.label, name)
		}
	}
	return b.String()
}

// ReadResults reads what an earlier run has written; there may be none.
func ReadResults(path string) (Results, error) {
	results := Results{}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return results, nil
	}
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	if err := json.Unmarshal(data, &results); err != nil {
		return nil, fmt.Errorf("results %s: %w", path, err)
	}
	return results, nil
}

// Write keeps the results for a later run.
func (r Results) Write(path string) error {
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if err := os.WriteFile(path+".partial", data, 0o644); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if err := os.Rename(path+".partial", path); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// report is the part of ginkgo's JSON report that is read.
type report struct {
	SpecReports []struct {
		ContainerHierarchyTexts []string
		LeafNodeText            string
		LeafNodeType            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct{ Message string }
	}
}

// addReport takes over the specs that ran. One that was cut short by the end of
// the time counts as not run.
func (r Results) addReport(data []byte) error {
	var reports []report
	if err := json.Unmarshal(data, &reports); err != nil {
		return fmt.Errorf("ginkgo's report: %w", err)
	}
	for _, rep := range reports {
		for _, spec := range rep.SpecReports {
			if spec.LeafNodeType != "It" {
				continue
			}
			name := strings.Join(append(slices.Clone(spec.ContainerHierarchyTexts), spec.LeafNodeText), " ")
			switch spec.State {
			case "passed":
				r[name] = append(r[name], Attempt{Passed: true, Took: spec.RunTime})
			case "failed", "panicked":
				r[name] = append(r[name], Attempt{Took: spec.RunTime, Failure: spec.Failure.Message})
			}
		}
	}
	return nil
}
