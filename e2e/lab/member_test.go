package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	utilexec "k8s.io/client-go/util/exec"
)

// One member for the whole package: the tests change it and put it right again.
func TestMember(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real cluster")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	m, err := Start(ctx, Options{Name: "m1", Dir: t.TempDir(), Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
		if left := Running(m.Dir()); len(left) > 0 {
			t.Errorf("still running after Stop: %v", left)
		}
	})
	client, err := m.Client()
	if err != nil {
		t.Fatal(err)
	}
	pod := deploy(t, ctx, client, 2)

	t.Run("logs", func(t *testing.T) { testLogs(t, ctx, m, client, pod) })
	t.Run("exec", func(t *testing.T) { testExec(t, ctx, m, client, pod) })
	t.Run("attach", func(t *testing.T) { testAttach(t, ctx, m, client, pod) })
	t.Run("port-forward", func(t *testing.T) { testPortForward(t, m, client, pod) })
	t.Run("streams", func(t *testing.T) { testStreams(t, ctx, m, client, pod) })
	t.Run("volumes", func(t *testing.T) { testVolumes(t, ctx, client) })
	t.Run("audit", func(t *testing.T) { testAudit(t, m) })
	t.Run("freeze", func(t *testing.T) { testFreeze(t, ctx, m, client) })
	t.Run("proxy", func(t *testing.T) { testProxyBeforeMember(t, ctx, m) })
	t.Run("kill", func(t *testing.T) { testKill(t, ctx, m, client) })
	t.Run("again", func(t *testing.T) { testStartAgain(t, ctx, m, client) })
}

func deploy(t *testing.T, ctx context.Context, client kubernetes.Interface, replicas int32) corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var pods *corev1.PodList
	eventually(t, time.Minute, func() error {
		pods, err = client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" {
				running++
			}
		}
		if running != int(replicas) {
			return fmt.Errorf("%d of %d Pods run", running, replicas)
		}
		return nil
	})
	return pods.Items[0]
}

func eventually(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", limit, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func testLogs(t *testing.T, ctx context.Context, m *Member, client kubernetes.Interface, pod corev1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	stream, err := client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	readUntil(t, stream, "hello 3 from a container in cluster m1")
	if err := m.AppendLog("a new line"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, stream, "a new line")
}

// readUntil fails the test when the stream ends before it showed the text.
func readUntil(t *testing.T, r io.Reader, text string) {
	t.Helper()
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), text) {
		n, err := r.Read(buf)
		seen.Write(buf[:n])
		if err != nil {
			t.Fatalf("the stream ended (%v) without %q: %q", err, text, seen.String())
		}
	}
}

func executor(t *testing.T, m *Member, client kubernetes.Interface, pod corev1.Pod, subresource string, options runtime.Object) remotecommand.Executor {
	t.Helper()
	config := restConfig(t, m)
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource(subresource).VersionedParams(options, scheme.ParameterCodec).URL()
	exec, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, url.String())
	if err != nil {
		t.Fatal(err)
	}
	return exec
}

func restConfig(t *testing.T, m *Member) *rest.Config {
	t.Helper()
	config, err := m.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	return config
}

func testExec(t *testing.T, ctx context.Context, m *Member, client kubernetes.Interface, pod corev1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	run := func(stdin string, command ...string) (string, string, error) {
		exec := executor(t, m, client, pod, "exec", &corev1.PodExecOptions{
			Container: "web", Command: command, Stdin: true, Stdout: true, Stderr: true,
		})
		var out, errOut bytes.Buffer
		err := exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errOut})
		return out.String(), errOut.String(), err
	}
	out, errOut, err := run("typed\n", "sh", "-c", `read line; echo "$line in $CLUSTER"; echo warning >&2`)
	if err != nil || out != "typed in m1\n" || errOut != "warning\n" {
		t.Fatalf("out %q, err %q, %v", out, errOut, err)
	}
	var exit utilexec.CodeExitError
	if _, _, err := run("", "sh", "-c", "exit 3"); !errors.As(err, &exit) || exit.Code != 3 {
		t.Fatalf("a failed command: %v, want exit code 3", err)
	}
}

func testAttach(t *testing.T, ctx context.Context, m *Member, client kubernetes.Interface, pod corev1.Pod) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	exec := executor(t, m, client, pod, "attach", &corev1.PodAttachOptions{Container: "web", Stdout: true, Stderr: true})
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: w, Stderr: io.Discard})
		done <- errors.Join(err, w.Close())
	}()
	go func() { // attach shows only what is new, and when it began is not visible
		for ctx.Err() == nil {
			_ = m.AppendLog("seen by attach") // a failure shows as a missing line
			time.Sleep(200 * time.Millisecond)
		}
	}()
	readUntil(t, r, "seen by attach")
	cancel()
	_ = r.Close()
	<-done //nolint:errcheck // the context was cancelled: its error is no news
}

func testPortForward(t *testing.T, m *Member, client kubernetes.Interface, pod corev1.Pod) {
	transport, upgrader, err := spdy.RoundTripperFor(restConfig(t, m))
	if err != nil {
		t.Fatal(err)
	}
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80", "0:7"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- forwarder.ForwardPorts() }()
	defer func() { close(stop); <-done }() //nolint:errcheck // ended on request
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || string(body) != fmt.Sprintf("hello from cluster m1, pod default/%s, port 80\n", pod.Name) {
		t.Fatalf("port 80: %q, %v", body, err)
	}
	echo, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", ports[1].Local))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = echo.Close() }()
	if _, err := io.WriteString(echo, "ping"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(echo, got); err != nil || string(got) != "ping" {
		t.Fatalf("port 7: %q, %v", got, err)
	}
}

// A claim is bound and its Pod runs.
func testVolumes(t *testing.T, ctx context.Context, client kubernetes.Interface) {
	claims := client.CoreV1().PersistentVolumeClaims("default")
	_, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "with-data"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", Image: "nginx"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error {
		claim, err := claims.Get(ctx, "data", metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod, err := client.CoreV1().Pods("default").Get(ctx, "with-data", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if claim.Status.Phase != corev1.ClaimBound || pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the claim is %s, the Pod %s", claim.Status.Phase, pod.Status.Phase)
		}
		return nil
	})
}

func testAudit(t *testing.T, m *Member) {
	data, err := os.ReadFile(m.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range bytes.Lines(data) {
		var event struct {
			Verb      string
			ObjectRef struct{ Resource, Name string }
			User      struct{ Username string }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatalf("audit line %q: %v", line, err)
		}
		found = found || event.Verb == "create" && event.ObjectRef.Resource == "deployments" && event.User.Username == "admin"
	}
	if !found {
		t.Fatal("the audit log has no create of the deployment")
	}
}

func testFreeze(t *testing.T, ctx context.Context, m *Member, client kubernetes.Interface) {
	if err := m.Freeze(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err := client.CoreV1().Pods("default").List(short, metav1.ListOptions{})
	if thaw := m.Thaw(); thaw != nil {
		t.Fatal(thaw)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a frozen server: %v, want no answer", err)
	}
	if _, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testProxyBeforeMember(t *testing.T, ctx context.Context, m *Member) {
	p, err := m.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	path, err := m.KubeconfigVia(p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	// The first request may meet the reset of its kept-alive connection.
	_, first := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if _, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); first == nil || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("through a cut proxy: %v, then %v, want connection refused", first, err)
	}
	heal(t, p)
	if _, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
}

func testKill(t *testing.T, ctx context.Context, m *Member, client kubernetes.Interface) {
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		t.Fatal("a killed server answered")
	}
	if err := m.Freeze(); !errors.Is(err, ErrNotRunning) {
		t.Fatalf("freezing a dead server: %v, want ErrNotRunning", err)
	}
	if err := m.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A stop and a start, with the API's port taken by a stranger meanwhile.
func testStartAgain(t *testing.T, ctx context.Context, m *Member, client kubernetes.Interface) {
	before, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	stranger, err := net.Listen("tcp", m.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	var said bytes.Buffer
	again, err := Start(ctx, Options{Name: "m1", Dir: m.Dir(), Logf: func(format string, args ...any) {
		fmt.Fprintf(&said, format+"\n", args...)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if again.Address() == m.Address() || !strings.Contains(said.String(), "taken by another program") {
		t.Fatalf("address %s, said %q: want another port and a word about it", again.Address(), said.String())
	}
	if again.ports.Etcd != m.ports.Etcd {
		t.Fatalf("etcd moved from port %d to %d without need", m.ports.Etcd, again.ports.Etcd)
	}
	client, err = again.Client()
	if err != nil {
		t.Fatal(err)
	}
	after, err := client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil || after.UID != before.UID {
		t.Fatalf("kube-system was %s, is %s, %v: want the same cluster", before.UID, after.UID, err)
	}
	if _, err := Start(ctx, Options{Name: "other", Dir: m.Dir()}); err == nil {
		t.Fatal("a folder of m1 was started as another member")
	}
}

// A record whose pid now belongs to another process is not ours to signal.
func TestStopSparesStrangers(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pids"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, record := range map[string]string{
		"reused":   fmt.Sprintf(`{"pid":%d,"started":"1","binary":"etcd"}`, os.Getpid()),
		"damaged":  `{"pid":`,
		"negative": `{"pid":-1,"started":"1"}`,
		"gone":     `{"pid":4194300,"started":"1"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "pids", name+".json"), []byte(record), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := Running(dir); len(got) > 0 {
		t.Fatalf("running: %v", got)
	}
	if err := StopDir(dir); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "pids", "*")); len(left) > 0 {
		t.Fatalf("stale records are left: %v", left)
	}
}
