package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Observe of the fake: what readers see of the name by now.
func (c *fakeCollection) Observe(ctx context.Context, _ cache.ClusterName, namespace, name string, _ uint64, _ []byte) (*cache.Object, error) {
	return c.Get(ctx, cache.Key{Namespace: namespace, Name: name}, cache.Version{})
}

// A deletion is answered with the object that goes, not with the one that has
// its name by then: clients wait until the UID of the answer is gone.
func TestDeleteAnswersWithWhatGoes(t *testing.T) {
	var e *endpoint
	m1 := newStub(t, func(w http.ResponseWriter, _ *http.Request) {
		next := pod("d", "db-0")
		next.UID = "next"
		e.pods.put(t, "m1", next, podFields)
		old := pod("d", "db-0")
		old.APIVersion, old.Kind = "v1", "Pod"
		grace := int64(30)
		old.UID, old.ResourceVersion, old.DeletionGracePeriodSeconds = "first", "7", &grace
		w.Header().Set("Content-Type", jsonType)
		if err := json.NewEncoder(w).Encode(old); err != nil {
			t.Error(err)
		}
	})
	e = newEndpoint(t, func(o *Options) { o.Members = staticMembers{m1.member("m1")} })
	first := pod("d", "db-0")
	first.UID = "first"
	e.pods.put(t, "m1", first, podFields)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, e.URL+"/api/v1/namespaces/d/pods/db-0", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", jsonType)
	resp, err := e.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var got metav1.PartialObjectMetadata
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || resp.StatusCode != 200 || got.UID != "first" || got.Name != "db-0" {
		t.Errorf("%d, UID %q, name %q, %v", resp.StatusCode, got.UID, got.Name, err)
	}
}
