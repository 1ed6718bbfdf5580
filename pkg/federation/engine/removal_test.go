package engine

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestStillThere(t *testing.T) {
	going := func(finalizers ...string) *copyRecord {
		return &copyRecord{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now()), Finalizers: finalizers}}
	}
	for want, c := range map[string]struct {
		there *copyRecord
		last  applied
	}{
		"the copy is not deleted yet":                           {&copyRecord{}, applied{}},
		"the copy is being deleted":                             {going(), applied{}},
		"the copy is being deleted and has the finalizers a, b": {going("a", "b"), applied{}},
		"the breaker asks":                                      {going("a"), applied{waits: "the breaker asks"}},
	} {
		if got := stillThere(c.there, c.last); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := stillThere(nil, applied{}); got != "the copy is not deleted yet" {
		t.Errorf("of a copy that has not been seen: %q", got)
	}
}

// A copy's finalizers are known, so that they can be named.
func TestRecordKeepsFinalizers(t *testing.T) {
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"d","finalizers":["example.com/member"]}}`)); err != nil {
		t.Fatal(err)
	}
	r, err := recordCopy("cp", u.GroupVersionKind(), u)
	if err != nil || len(r.Finalizers) != 1 {
		t.Errorf("%v %v", r, err)
	}
}
