package adopt

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

func set(paths ...string) *fieldpath.Set {
	s := fieldpath.NewSet()
	for _, p := range paths {
		var path fieldpath.Path
		for name := range strings.SplitSeq(p, ".") {
			path = append(path, fieldpath.PathElement{FieldName: &name})
		}
		s.Insert(path)
	}
	return s
}

func entry(t rapid.TB, manager string, op metav1.ManagedFieldsOperationType, sub, version string, s *fieldpath.Set) metav1.ManagedFieldsEntry {
	f, err := encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, Subresource: sub, APIVersion: version, FieldsType: "FieldsV1", FieldsV1: f}
}

func describeEntries(t rapid.TB, entries []metav1.ManagedFieldsEntry) []string {
	var out []string
	for _, e := range entries {
		s, err := fieldsOf(e)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		s.Leaves().Iterate(func(p fieldpath.Path) { paths = append(paths, strings.TrimPrefix(p.String(), ".")) })
		out = append(out, fmt.Sprintf("%s/%s/%s: %s", e.Manager, e.Operation, e.Subresource, strings.Join(paths, " ")))
	}
	return out
}

const (
	update = metav1.ManagedFieldsOperationUpdate
	apply  = metav1.ManagedFieldsOperationApply
)

func TestMove(t *testing.T) {
	v1 := func(manager string, op metav1.ManagedFieldsOperationType, sub string, paths ...string) metav1.ManagedFieldsEntry {
		return entry(t, manager, op, sub, "apps/v1", set(paths...))
	}
	answer := v1(marks.Manager, apply, "", "spec.a", "spec.b", "metadata.labels.x")
	for name, c := range map[string]struct {
		have []metav1.ManagedFieldsEntry
		want []string
		same bool
	}{
		"what we speak of is taken, the rest stays": {
			have: []metav1.ManagedFieldsEntry{v1("kubectl", update, "", "spec.a", "spec.other")},
			want: []string{"kubectl/Update/: spec.other", "isthmus/Apply/: spec.a"},
		},
		"a manager without other fields goes": {
			have: []metav1.ManagedFieldsEntry{v1("kubectl", update, "", "spec.a", "spec.b")},
			want: []string{"isthmus/Apply/: spec.a spec.b"},
		},
		"an applier too": {
			have: []metav1.ManagedFieldsEntry{v1("flux", apply, "", "spec.a", "spec.b", "spec.c"), v1("x", update, "", "spec.b")},
			want: []string{"flux/Apply/: spec.c", "isthmus/Apply/: spec.a spec.b"},
		},
		"status and scale keep what they have": {
			have: []metav1.ManagedFieldsEntry{v1("hpa", update, "scale", "spec.a"), v1("kcm", update, "status", "spec.b"), v1("kubectl", update, "", "spec.b")},
			want: []string{"hpa/Update/scale: spec.a", "kcm/Update/status: spec.b", "isthmus/Apply/: spec.b"},
		},
		"what we have already is kept": {
			have: []metav1.ManagedFieldsEntry{v1(marks.Manager, apply, "", "spec.old"), v1("kubectl", update, "", "spec.a")},
			want: []string{"isthmus/Apply/: spec.a spec.old"},
		},
		"nothing in common": {
			have: []metav1.ManagedFieldsEntry{v1("kubectl", update, "", "spec.other")},
			want: []string{"kubectl/Update/: spec.other"}, same: true,
		},
		"another version of the API is given up": {
			have: []metav1.ManagedFieldsEntry{entry(t, "old", update, "", "extensions/v1beta1", set("spec.a", "spec.rollbackTo"))},
			want: []string{"isthmus/Apply/: spec.a"},
		},
		"no owner at all": {
			have: nil,
			want: []string{"isthmus/Apply/: metadata.labels.x spec.a spec.b"},
		},
	} {
		got, changed, err := Move(c.have, answer)
		if err != nil || changed == c.same {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
		if have := describeEntries(t, got); strings.Join(have, "|") != strings.Join(c.want, "|") {
			t.Errorf("%s: %q, want %q", name, have, c.want)
		}
	}
	broken := metav1.FieldsV1{}
	broken.SetRawString("{")
	if _, _, err := Move([]metav1.ManagedFieldsEntry{{Manager: "x", Operation: update, FieldsV1: &broken}}, answer); err == nil {
		t.Error("broken managedFields are not reported")
	}
}

// Whoever owned what: afterwards nobody but us owns what we speak of, nobody has
// lost anything else, and status and scale are as they were.
func TestMoveOwnsWhatIsSpokenOf(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	paths := rapid.Custom(func(t *rapid.T) *fieldpath.Set {
		s := fieldpath.NewSet()
		for range rapid.IntRange(0, 8).Draw(t, "n") {
			p := rapid.SampledFrom(names).Draw(t, "p")
			for range rapid.IntRange(0, 2).Draw(t, "depth") {
				p += "." + rapid.SampledFrom(names).Draw(t, "p")
			}
			s = s.Union(set(p))
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		claims := paths.Draw(t, "claims")
		answer := entry(t, marks.Manager, apply, "", "apps/v1", claims)
		var have []metav1.ManagedFieldsEntry
		for i := range rapid.IntRange(0, 5).Draw(t, "managers") {
			op := rapid.SampledFrom([]metav1.ManagedFieldsOperationType{update, apply}).Draw(t, "op")
			sub := rapid.SampledFrom([]string{"", "", "status", "scale"}).Draw(t, "sub")
			have = append(have, entry(t, fmt.Sprintf("m%d", i), op, sub, "apps/v1", paths.Draw(t, "fields")))
		}
		got, _, err := Move(have, answer)
		if err != nil {
			t.Fatal(err)
		}
		ours, after := fieldpath.NewSet(), map[string]*fieldpath.Set{}
		for _, e := range got {
			s, err := fieldsOf(e)
			if err != nil {
				t.Fatal(err)
			}
			if isOurs(e) {
				ours = s
				continue
			}
			after[e.Manager] = s
		}
		for _, e := range have {
			was, err := fieldsOf(e)
			if err != nil {
				t.Fatal(err)
			}
			is := after[e.Manager]
			if is == nil {
				is = fieldpath.NewSet()
			}
			want := was
			if e.Subresource == "" {
				want = was.Difference(claims)
				if lost := was.Intersection(claims).Difference(ours); !lost.Empty() {
					t.Fatalf("%s lost %s to nobody", e.Manager, lost)
				}
			}
			if !is.Equals(want) {
				t.Fatalf("%s has %s, want %s", e.Manager, is, want)
			}
		}
		if extra := ours.Difference(claims); !extra.Empty() {
			t.Fatalf("we own %s and do not speak of it", extra)
		}
		again, changed, err := Move(got, answer)
		if err != nil || changed && len(got) > 0 {
			t.Fatalf("not settled: %v %v", again, err)
		}
	})
}
