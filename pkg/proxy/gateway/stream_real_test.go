package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream" //nolint:staticcheck // the dialers of client-go still speak it
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	clientexec "k8s.io/client-go/util/exec"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

func (l *lab) executor(t *testing.T, ns, pod, protocol string, command ...string) remotecommand.Executor {
	t.Helper()
	req := l.client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "c", Command: command, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	var e remotecommand.Executor
	var err error
	if protocol == "websocket" {
		e, err = remotecommand.NewWebSocketExecutor(l.config, http.MethodGet, req.URL().String())
	} else {
		e, err = remotecommand.NewSPDYExecutor(l.config, http.MethodPost, req.URL())
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestRealExec(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	for served, cluster := range map[string]string{"db-0": "m1", "db-0.m2": "m2"} {
		for _, protocol := range []string{"websocket", "spdy"} {
			var out, stderr bytes.Buffer
			e := l.executor(t, ns, served, protocol, "sh", "-c", "echo $CLUSTER; head -c 1048576; echo oops >&2; exit 7")
			payload := strings.Repeat("x", 1<<20)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(payload), Stdout: &out, Stderr: &stderr})
			var exit clientexec.CodeExitError
			if !errors.As(err, &exit) || exit.Code != 7 {
				t.Errorf("%s %s: %v", served, protocol, err)
			}
			if got := out.String(); got != cluster+"\n"+payload {
				t.Errorf("%s %s: %d bytes, begins %.20q", served, protocol, len(got), got)
			}
			if stderr.String() != "oops\n" {
				t.Errorf("%s %s: stderr %q", served, protocol, stderr.String())
			}
		}
	}
	err := l.executor(t, ns, "absent", "spdy", "true").StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("absent: %v", err)
	}
}

func TestRealLog(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	for _, name := range []string{"db-0", "db-0.m2"} {
		if b, err := l.client.CoreV1().Pods(ns).GetLogs(name, &corev1.PodLogOptions{Container: "c"}).DoRaw(t.Context()); err != nil {
			t.Errorf("%s: %v %q", name, err, b)
		}
	}
	if _, err := l.client.CoreV1().Pods(ns).GetLogs("db-0", &corev1.PodLogOptions{Container: "none"}).DoRaw(t.Context()); !apierrors.IsBadRequest(err) {
		t.Errorf("no such container: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	s, err := l.client.CoreV1().Pods(ns).GetLogs("db-0.m2", &corev1.PodLogOptions{Container: "c", Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := time.Now()
	text, err := io.ReadAll(s)
	if bytes.Contains(text, []byte("fsnotify")) {
		t.Skip("this machine has no inotify watches left for the lab to follow a log with")
	}
	if time.Since(start) < time.Second {
		t.Errorf("following ended by itself: %v", err)
	}
}

func TestRealPortForward(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	u := l.client.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name("db-0.m2").SubResource("portforward").URL()
	rt, upgrader, err := spdy.RoundTripperFor(l.config)
	if err != nil {
		t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(u, l.config)
	if err != nil {
		t.Fatal(err)
	}
	overSPDY := spdy.NewDialer(upgrader, &http.Client{Transport: rt}, http.MethodPost, u)
	for name, dialer := range map[string]httpstream.Dialer{
		"spdy": overSPDY, "websocket": tunnel,
	} {
		stop, ready := make(chan struct{}), make(chan struct{})
		f, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- f.ForwardPorts() }()
		select {
		case <-ready:
		case err := <-done:
			t.Fatalf("%s: %v", name, err)
		}
		ports, err := f.GetPorts()
		if err != nil {
			t.Fatal(err)
		}
		address := (&url.URL{Scheme: "http", Host: "127.0.0.1:" + formatRV(uint64(ports[0].Local)), Path: "/"}).String()
		for range 3 {
			resp, err := http.Get(address) //nolint:noctx // a local port
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		http.DefaultClient.CloseIdleConnections()
		close(stop)
		if err := <-done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRealEviction(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	all := intstr.FromString("100%")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	m2 := l.members["m2"]
	if _, err := m2.PolicyV1().PodDisruptionBudgets(ns).Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget counts", func() bool {
		b, err := m2.PolicyV1().PodDisruptionBudgets(ns).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && b.Status.ObservedGeneration > 0
	})
	evict := func(name string) error {
		return l.client.PolicyV1().Evictions(ns).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	}
	if err := evict("db-0.m2"); !apierrors.IsTooManyRequests(err) || !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("held by the budget: %v", err)
	}
	if err := evict("absent"); !apierrors.IsNotFound(err) {
		t.Errorf("absent: %v", err)
	}
	if err := m2.PolicyV1().PodDisruptionBudgets(ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "db-0.m2 is evicted", func() bool {
		if err := evict("db-0.m2"); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err) {
			t.Fatal(err)
		}
		_, err := m2.CoreV1().Pods(ns).Get(t.Context(), "db-0", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if _, err := l.members["m1"].CoreV1().Pods(ns).Get(t.Context(), "db-0", metav1.GetOptions{}); err != nil {
		t.Errorf("the twin: %v", err)
	}
}

func TestRealSubresources(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	pods := l.client.CoreV1().Pods(ns)
	p, err := pods.Get(t.Context(), "db-0.m2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox"}}}
	if p, err = pods.UpdateEphemeralContainers(t.Context(), "db-0.m2", p, metav1.UpdateOptions{}); err != nil || len(p.Spec.EphemeralContainers) != 1 {
		t.Fatalf("%v %v", p, err)
	}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/Checked", Status: corev1.ConditionTrue})
	if p, err = pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil || p.Name != "db-0.m2" {
		t.Fatalf("%v %v", p, err)
	}
	if err := l.client.CoreV1().RESTClient().Get().Namespace(ns).Resource("pods").Name("db-0.m2").SubResource("status").Do(t.Context()).Into(p); err != nil || p.Name != "db-0.m2" {
		t.Errorf("%v %v", p, err)
	}
}

func TestRealEvents(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	l.twins(t, ns, "db-0")
	p, err := l.client.CoreV1().Pods(ns).Get(t.Context(), "db-0.m2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := l.client.EventsV1().Events(ns).Create(t.Context(), &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "seen-"}, EventTime: metav1.NowMicro(), Reason: "Seen", Action: "Look", Type: "Normal",
		ReportingController: "example.com/tester", ReportingInstance: "1",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: ns, Name: p.Name, UID: p.UID},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Labels[cache.ClusterLabel] != "m2" || made.Regarding.Name != "db-0.m2" || made.Reason != "Seen" {
		t.Errorf("answered %+v", made)
	}
	stored, err := l.members["m2"].CoreV1().Events(ns).Get(t.Context(), made.Name, metav1.GetOptions{})
	if err != nil || stored.InvolvedObject.Name != "db-0" {
		t.Errorf("stored %v %v", stored, err)
	}
	made.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: metav1.NowMicro()}
	updated, err := l.client.EventsV1().Events(ns).Update(t.Context(), made, metav1.UpdateOptions{})
	if err != nil || updated.Series == nil || updated.Name != made.Name {
		t.Errorf("updated %v", err)
	}
	patched, err := l.client.CoreV1().Events(ns).Patch(t.Context(), made.Name, "application/strategic-merge-patch+json", []byte(`{"count":2}`), metav1.PatchOptions{})
	if err != nil || patched.Count != 2 || patched.ResourceVersion == made.ResourceVersion {
		t.Errorf("patched: count %d, %v", patched.Count, err)
	}
	if _, err := l.client.EventsV1().Events(ns).Patch(t.Context(), made.Name, "application/json-patch+json", []byte(`[{"op":"test","path":"/regarding/name","value":"db-0.m2"},{"op":"replace","path":"/series/count","value":3}]`), metav1.PatchOptions{}); err != nil {
		t.Errorf("JSON patch: %v", err)
	}
}

func TestRealClusterProxy(t *testing.T) {
	l := newLab(t)
	ns := l.namespace(t)
	proxied := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// As the router does: the rest of the path is the member's.
		name, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, clusterProxyPrefix), "/proxy")
		info := &request.RequestInfo{IsResourceRequest: true, Verb: "get", APIGroup: "cluster.karmada.io", APIVersion: "v1alpha1", Resource: "clusters", Subresource: "proxy", Name: name}
		ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: "alice"})
		l.handler.ServeClusterProxy(w, r.WithContext(ctx), name, rest)
	}))
	defer proxied.Close()
	client := func(name string) *kubernetes.Clientset {
		return kubernetes.NewForConfigOrDie(&rest.Config{Host: proxied.URL + clusterProxyPrefix + name + "/proxy"})
	}
	pods := client("m2").CoreV1().Pods(ns)
	watch, err := pods.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	made, err := pods.Create(t.Context(), simplePod("direct"), metav1.CreateOptions{})
	if err != nil || made.Labels[cache.ClusterLabel] != "" {
		t.Fatalf("%v %v", made, err)
	}
	select {
	case e := <-watch.ResultChan():
		if p, ok := e.Object.(*corev1.Pod); !ok || p.Name != "direct" {
			t.Errorf("saw %v", e)
		}
	case <-time.After(5 * time.Second):
		t.Error("the watch is held back")
	}
	if _, err := client("m9").CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("unknown cluster: %v", err)
	}
}
