package retain

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	stored = `{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {mine: x, job-name: j}}, spec: {ttlSecondsAfterFinished: 5, manualSelector: false,
	  selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}},
	  template: {metadata: {labels: {app: a, controller-uid: u, job-name: j, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: j}}, spec: {}}}}`
	alike = `{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {mine: x, job-name: j}}, spec: {manualSelector: true,
	  selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}},
	  template: {metadata: {labels: {app: a, controller-uid: u, job-name: j, batch.kubernetes.io/controller-uid: u, batch.kubernetes.io/job-name: j}}, spec: {}}}}`
	generated = `{apiVersion: batch/v1, kind: Job, metadata: {name: j, labels: {mine: x}}, spec: {template: {metadata: {labels: {app: a}}, spec: {}}}}`
	// ownSelector is a user's.
	ownSelector = `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {manualSelector: true, selector: {matchLabels: {job-name: j}}, template: {metadata: {labels: {job-name: j}}, spec: {}}}}`
	unselected  = `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {}}}}`
	deployment  = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: j}, spec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: u}}}}`
)

func TestStripAlike(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		alike    bool
	}{
		"generated":         {stored, alike, true},
		"a user's selector": {ownSelector, ownSelector, false},
		"no selector":       {unselected, unselected, false},
		"another kind":      {deployment, deployment, false},
	} {
		got := object(t, c.in)
		if StripAlike(got) != c.alike {
			t.Errorf("%s: alike is not %v", name, c.alike)
		}
		if diff := cmp.Diff(object(t, c.want).Object, got.Object); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// What the member is to generate is what Strip alone would have sent.
func TestGenerate(t *testing.T) {
	got := object(t, alike)
	Generate(got)
	if diff := cmp.Diff(object(t, generated).Object, got.Object); diff != "" {
		t.Error(diff)
	}
}

func TestSelects(t *testing.T) {
	for in, want := range map[string]string{alike: "u", stored: "", ownSelector: "", unselected: "", deployment: ""} {
		if got := Selects(object(t, in)); got != want {
			t.Errorf("selects %q, want %q: %s", got, want, in)
		}
	}
}
