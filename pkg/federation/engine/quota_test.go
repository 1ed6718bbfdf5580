package engine

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
	"github.com/isthmus-dev/isthmus/pkg/federation/quota"
)

// What is told carries its step, and what was asked for is forgotten in time.
func TestQuotaOnRecord(t *testing.T) {
	hard := corev1.ResourceList{"pods": resource.MustParse("3"), "requests.cpu": resource.MustParse("500m")}
	d := &decision{quota: quota.State{"m1": {Granted: hard, Told: hard, Step: 4}}}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"hard": map[string]any{"pods": "9", "configmaps": "1"}}}}
	if err := d.divideInto(u, "m1"); err != nil {
		t.Fatal(err)
	}
	got, err := recordQuota(u)
	if err != nil {
		t.Fatal(err)
	}
	if got.step != 4 || len(got.hard) != 2 || got.hard.Pods().Value() != 3 || got.hard["requests.cpu"] != resource.MustParse("500m") {
		t.Errorf("the copy shows %+v", got)
	}
	now := time.Now()
	asked := func(at time.Time) string {
		raw, err := json.Marshal(map[string]any{"at": at, "resources": map[string]string{"pods": "1"}})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	b := &binding{}
	b.Annotations = map[string]string{marks.QuotaWanted + "m1": asked(now), marks.QuotaWanted + "m2": asked(now.Add(-time.Hour)), marks.QuotaWanted + "m3": "nonsense"}
	for cluster, want := range map[string]bool{"m1": true, "m2": false, "m3": false, "m4": false} {
		if got := askedOf(b, cluster, now) != nil; got != want {
			t.Errorf("%s asks: %v", cluster, got)
		}
	}
	if err := noteQuota(b, d, now); err != nil {
		t.Fatal(err)
	}
	if len(b.Annotations) != 2 || b.Annotations[marks.QuotaWanted+"m1"] == "" {
		t.Errorf("on record: %v", b.Annotations)
	}
	b.Spec.Resource.UID = "u"
	if state := quotaState(b, &template{}); len(state) != 0 {
		t.Errorf("another quota's shares: %v", state)
	}
	tt := &template{}
	tt.UID = "u"
	if state := quotaState(b, tt); state["m1"].Step != 4 {
		t.Errorf("on record: %v", state)
	}
}
