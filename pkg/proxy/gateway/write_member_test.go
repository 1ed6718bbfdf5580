package gateway

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/membercache"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
)

// labVariable names the directory of a running lab (see e2e/README.md) with
// the members m1 and m2. Tests with real members are skipped without it.
const labVariable = "ISTHMUS_LAB"

// lab is the handler over a real member cache and two real members.
type lab struct {
	*httptest.Server
	handler *Handler
	cache   *membercache.Cache
	client  *kubernetes.Clientset            // of the endpoint
	members map[string]*kubernetes.Clientset // direct
	config  *rest.Config
}

type staticMembers []Member

func (s staticMembers) List() []Member { return s }
func (s staticMembers) Get(name cache.ClusterName) (Member, bool) {
	for _, m := range s {
		if m.Name == name {
			return m, true
		}
	}
	return Member{}, false
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := os.Getenv(labVariable)
	if dir == "" {
		t.Skipf("%s is not set", labVariable)
	}
	rvs, err := sequence.Open(t.Context(), clock.RealClock{}, &sequence.Memory{}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	mc, err := membercache.New(membercache.Config{Clock: rvs})
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{cache: mc, members: map[string]*kubernetes.Clientset{}}
	var members staticMembers
	for i, name := range []string{"m1", "m2"} {
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "members", name, "kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		config.QPS, config.Burst = -1, -1
		l.members[name] = kubernetes.NewForConfigOrDie(config)
		ns, err := l.members[name].CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := mc.SetSource(membercache.Source{Name: cache.ClusterName(name), UID: ns.UID, Order: i, Config: config}); err != nil {
			t.Fatal(err)
		}
		members = append(members, Member{Name: cache.ClusterName(name), UID: string(ns.UID), Order: int64(i), Ready: true, EverSynced: true, Config: config})
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); mc.Run(ctx) }()
	l.handler = New(Options{Cache: mc, Members: members})
	l.Server = httptest.NewServer(chain(l.handler))
	t.Cleanup(func() {
		l.CloseClientConnections()
		l.Close()
		cancel()
		<-done
	})
	l.config = &rest.Config{Host: l.URL, QPS: -1, Burst: -1}
	l.client = kubernetes.NewForConfigOrDie(l.config)
	for _, c := range mc.Collections() {
		eventually(t, "members are synced", func() bool { return len(c.Gaps()) == 0 })
	}
	return l
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// namespace makes a fresh namespace in both members.
func (l *lab) namespace(t *testing.T) string {
	t.Helper()
	name := "writes-" + rand.String(8)
	for _, m := range l.members {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := m.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
		eventually(t, "service account", func() bool {
			_, err := m.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
			return err == nil
		})
	}
	return name
}

func simplePod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "c", Image: "nginx"}},
		},
	}
}

// twins makes a Pod of one name in each member, directly, and waits until both
// are served and run.
func (l *lab) twins(t *testing.T, ns, name string) {
	t.Helper()
	for _, m := range []string{"m1", "m2"} {
		if _, err := l.members[m].CoreV1().Pods(ns).Create(t.Context(), simplePod(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, served := range []string{name, name + ".m2"} {
		eventually(t, served+" runs", func() bool {
			p, err := l.client.CoreV1().Pods(ns).Get(t.Context(), served, metav1.GetOptions{})
			return err == nil && p.Status.Phase == corev1.PodRunning
		})
	}
}
