package conformance

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed specs.txt
var specs string

//go:embed sample.txt
var sample string

//go:embed differs.txt
var differs string

// Differing are the specs that an endpoint over many clusters need not pass.
func Differing() []string { return lines(differs) }

// Specs are the names of all specs that pass on a plain cluster of kwok nodes.
func Specs() []string { return lines(specs) }

// Sample is a fixed choice of them, over every sig, for a run of minutes.
func Sample() []string { return lines(sample) }

// Matching are the names that focus matches and skip does not; an empty focus
// matches all, an empty skip none.
func Matching(names []string, focus, skip string) ([]string, error) {
	take, err := regexp.Compile(focus)
	if err != nil {
		return nil, fmt.Errorf("focus: %w", err)
	}
	leave, err := regexp.Compile(skip)
	if err != nil {
		return nil, fmt.Errorf("skip: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !take.MatchString(name) || skip != "" && leave.MatchString(name)
	}), nil
}

// sig is the group that answers for a spec.
func sig(name string) string {
	group, _, found := strings.Cut(strings.TrimPrefix(name, "["), "]")
	if !found {
		return ""
	}
	return group
}

// focus is ginkgo's pattern for exactly these specs. It matches what follows
// the suite's name, which is not part of ours.
func focus(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "(" + strings.Join(quoted, "|") + ")$"
}

func lines(text string) []string {
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "#")
	})
}
