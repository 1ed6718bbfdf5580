package engine

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/placement"
	"github.com/isthmus-dev/isthmus/pkg/federation/retain"
)

const onceJob = `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"once","namespace":"d","uid":"tu","resourceVersion":"5"},
	"spec":{"selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"tu"}},
	"template":{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"tu"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`

// A Job's selector can never be changed: a new copy has the template's, one
// that is there keeps its own.
func TestJobsSelectorIsThatOfTheTemplate(t *testing.T) {
	key := marks.Key{GroupVersionKind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Namespace: "d", Name: "once"}
	for name, c := range map[string]struct {
		there *copyRecord
		want  types.UID
	}{
		"a new copy":                        {nil, "tu"},
		"one made so":                       {&copyRecord{selects: "tu"}, "tu"},
		"one with a generated selector":     {&copyRecord{}, ""},
		"one of an earlier template":        {&copyRecord{selects: "other"}, ""},
		"one that some cluster keeps whole": {&copyRecord{templateUID: "tu"}, ""},
	} {
		job := templateOf(t, onceJob)
		r, err := render("cp", 3, key, job, &decision{targets: map[string]int32{"m1": 0}}, &placement.Cluster{Name: "m1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.conform(job, c.there); err != nil {
			t.Fatal(err)
		}
		if got := types.UID(retain.Selects(r.object)); got != c.want {
			t.Errorf("%s: selects %q, want %q", name, got, c.want)
		}
		if hash, err := appliedHash(r.object.Object); err != nil || hash != r.hash {
			t.Errorf("%s: the hash is not that of what is sent: %v", name, err)
		}
	}
}
