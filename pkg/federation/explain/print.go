package explain

import (
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Print writes the report for a person.
func (r Report) Print(out io.Writer) error {
	w := &writer{out: out}
	w.line("%s", r.Template)
	if r.Forbidden != "" {
		w.line("  never propagated: %s", r.Forbidden)
		return w.err
	}
	w.line("\nPolicy")
	w.line("  %s", r.Policy)
	for _, o := range r.Others {
		w.line("  also matches: %s", o)
	}
	w.line("\nPlacement")
	w.placement(r)
	w.overrides(r)
	w.differences(r)
	w.conditions(r)
	if len(r.Waits) > 0 {
		w.line("\nThe breaker holds back (multicluster-apiserver breaker status)")
		for _, x := range r.Waits {
			w.line("  %s", x)
		}
	}
	if len(r.Problems) > 0 {
		w.line("\nPolicies that cannot be used")
		for _, p := range r.Problems {
			w.line("  %s", p)
		}
	}
	return w.err
}

// writer keeps the first error.
type writer struct {
	out io.Writer
	err error
}

func (w *writer) line(format string, args ...any) {
	if w.err == nil {
		_, w.err = fmt.Fprintf(w.out, format+"\n", args...)
	}
}

func (w *writer) placement(r Report) {
	targets, width := 0, 0
	for _, c := range r.Clusters {
		width = max(width, len(c.Name))
		if c.Target {
			targets++
		}
	}
	summary := fmt.Sprintf("%d of %d clusters", targets, len(r.Clusters))
	if r.Replicas > 0 {
		summary = fmt.Sprintf("%d replicas in %s", r.Replicas, summary)
	}
	if !r.Bound {
		summary = "not decided yet"
	}
	w.line("  %s", summary)
	for _, c := range r.Clusters {
		said := "excluded: " + c.Excluded
		if c.Target {
			said = c.State
			if r.Replicas > 0 {
				said = strings.TrimSuffix(fmt.Sprintf("%d replicas, %s", c.Replicas, c.State), ", ")
			}
		}
		w.line("  %-*s  %s", width, c.Name, said)
	}
}

func (w *writer) overrides(r Report) {
	w.each(r, "Overrides", func(c Cluster) []string { return c.Overrides })
}

func (w *writer) differences(r Report) {
	w.each(r, "Differences between what a cluster is told and what it has", func(c Cluster) []string { return c.Drift })
}

func (w *writer) each(r Report, title string, of func(Cluster) []string) {
	first := true
	for _, c := range r.Clusters {
		for _, s := range of(c) {
			if first {
				w.line("\n%s", title)
				first = false
			}
			w.line("  %s: %s", c.Name, s)
		}
	}
}

func (w *writer) conditions(r Report) {
	if len(r.Conditions) == 0 {
		return
	}
	w.line("\nConditions")
	for _, c := range r.Conditions {
		said := c.Type + " " + string(c.Status)
		if c.Status != metav1.ConditionTrue || c.Message != "" {
			said += " (" + c.Reason + ")"
		}
		if c.Message != "" {
			said += ": " + c.Message
		}
		w.line("  %s", said)
	}
}

// YAML writes what each target is told, a document each.
func (r Report) YAML(out io.Writer) error {
	for _, c := range r.Clusters {
		if !c.Target {
			continue
		}
		if c.Rendered == nil {
			if _, err := fmt.Fprintf(out, "---\n# %s: %s\n", c.Name, c.State); err != nil {
				return err
			}
			continue
		}
		text, err := yaml.Marshal(c.Rendered.Object)
		if err != nil {
			return fmt.Errorf("what %s is told: %w", c.Name, err)
		}
		if _, err := fmt.Fprintf(out, "---\n# %s\n%s", c.Name, text); err != nil {
			return err
		}
	}
	return nil
}
