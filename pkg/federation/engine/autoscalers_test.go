package engine

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/isthmus-dev/isthmus/pkg/federation/marks"
)

// Until a member's autoscalers are known, replicas stay; a member that has none,
// or does not show them, keeps nobody waiting, but silence is no answer.
func TestUnknownAutoscalers(t *testing.T) {
	e := &Engine{}
	m := &member{name: "m1", engine: e, queue: newQueue[marks.Key](""), applied: map[marks.Key]*applied{}}
	defer m.queue.ShutDown()
	m.scalers = &copyWatch{informer: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{byTarget: indexByTarget})}
	scaled := func() bool { return e.scaled(webKey, m, 3, 5, false) }
	if !scaled() {
		t.Error("replicas that may be an autoscaler's are set")
	}
	m.noteUnsure(webKey)
	if m.scalers.failed(errors.New("the server has been silent for too long")) || !scaled() {
		t.Error("silence is taken for the word that there are none")
	}
	if !m.scalers.failed(apierrors.NewForbidden(autoscalers.GroupResource(), "", nil)) || scaled() {
		t.Error("a member that does not show its autoscalers has the replicas wait for ever")
	}
	if m.scalersKnown(); m.queue.Len() != 1 {
		t.Error("what has waited is not looked at again")
	}
	if m.noteUnsure(webKey); m.record(webKey).unsure {
		t.Error("still unsure")
	}
}
