package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

func restarted(p *corev1.Pod, ago time.Duration) *corev1.Pod {
	p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
		Name: "c", RestartCount: 3, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Now().Add(-ago))}},
	})
	return p
}

func aged(age time.Duration) *corev1.Pod {
	p := pod("default", "web")
	p.CreationTimestamp = metav1.NewTime(time.Now().Add(-age).Truncate(time.Second))
	return p
}

// TestTemplates: a row that is made of its template is at every later moment the
// one that the printer makes.
func TestTemplates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := map[string]struct {
			pod *corev1.Pod
			not bool // there can be no template
		}{
			"no age":                              {pod: pod("default", "web")},
			"new":                                 {pod: aged(0)},
			"old":                                 {pod: aged(100 * 24 * time.Hour)},
			"future":                              {pod: aged(-time.Hour)},
			"restarted":                           {pod: restarted(aged(26*time.Hour), 70*time.Minute)},
			"restarted twice, at different times": {pod: restarted(restarted(aged(26*time.Hour), 70*time.Minute), 5*time.Hour)},
			"restarted twice, at times that look the same":    {pod: restarted(restarted(aged(26*time.Hour), 70*time.Minute), 70*time.Minute+time.Second), not: true},
			"a name that is no UTF-8, which JSON cannot have": {pod: pod("default", "a\xffb")},
		}
		k := &kind{gvk: corev1.SchemeGroupVersion.WithKind("Pod"), scheme: legacyscheme.Scheme, known: true, namespaced: true, view: podView}
		for _, include := range []metav1.IncludeObjectPolicy{metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject} {
			v := tableValue{kind: k, tables: newTableMaker(legacyscheme.Scheme, nil), form: form{metaVersion: metav1.SchemeGroupVersion, table: metav1.TableOptions{IncludeObject: include}}}
			places, ok := v.tables.agePlaces(k)
			if !ok {
				t.Fatal("a Pod has no age")
			}
			templates := map[string][]byte{}
			objects := map[string]*cache.Object{}
			for name, tc := range pods {
				raw, err := tc.pod.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				objects[name] = &cache.Object{Key: cache.Key{Namespace: "default", Name: tc.pod.Name}, Cluster: "m1", Body: cache.Bytes(raw)}
				template, err := v.appendTemplate([]byte("before"), objects[name], places)
				if (err != nil) != tc.not {
					t.Errorf("%s: %v", name, err)
				}
				if err == nil {
					templates[name] = template
				}
			}
			for _, later := range []time.Duration{0, time.Second, 3 * time.Minute, 2 * time.Hour, 50 * time.Hour} {
				time.Sleep(later)
				for name, template := range templates {
					want, err := v.appendRow([]byte("before"), objects[name])
					if err != nil {
						t.Fatal(err)
					}
					if got := fillIn(nil, template, time.Now()); string(got) != string(want) {
						t.Errorf("%s, %s later:\n%s instead of\n%s", name, later, got, want)
					}
				}
			}
		}
	})
}
