package outage

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	clusterLabel = "isthmus.dev/cluster"
	ourNamespace = "isthmus-system" // in a member and in the control plane
)

var clusters = schema.GroupVersionResource{Group: "cluster.karmada.io", Version: "v1alpha1", Resource: "clusters"}

// memberNamespace makes a namespace of one name in the members, without the
// endpoint's doing, and removes it with the test.
func memberNamespace(t testing.TB, base string, members ...*lab.Member) string {
	t.Helper()
	ns := labtest.UniqueName(t, base)
	for _, m := range members {
		makeNamespace(t, m, ns)
	}
	return ns
}

func makeNamespace(t testing.TB, m *lab.Member, ns string) {
	t.Helper()
	client := labtest.Client(t, m)
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatalf("namespace %s in %s: %v", ns, m.Name(), err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err := client.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete namespace %s in %s: %v", ns, m.Name(), err)
		}
	})
	// The controllers of a member that has just come back take their time.
	labtest.Eventually(t, within(90*time.Second), func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// endpointNamespace makes a namespace through the endpoint and removes it with
// the test.
func endpointNamespace(t testing.TB, base string) string {
	t.Helper()
	ns := labtest.UniqueName(t, base)
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "create", "namespace", ns)
	t.Cleanup(func() {
		if res := labtest.Kubectl(t, world.System.Kubeconfig(), "", "delete", "namespace", ns, "--wait=false"); res.Code != 0 {
			t.Errorf("delete namespace %s: %s", ns, res.Err)
		}
	})
	return ns
}

// clusterObjects is the API of Cluster objects.
func clusterObjects(t testing.TB) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(labtest.Config(t, world.System))
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(clusters)
}

// condition of a Cluster.
type condition struct{ status, reason, message string }

func (c condition) String() string {
	return fmt.Sprintf("%s (%s: %s)", c.status, c.reason, c.message)
}

func conditionOf(cluster *unstructured.Unstructured, name string) condition {
	list, _, _ := unstructured.NestedSlice(cluster.Object, "status", "conditions") // absent reads as no conditions
	for _, one := range list {
		if c, ok := one.(map[string]any); ok && c["type"] == name {
			return condition{fmt.Sprint(c["status"]), fmt.Sprint(c["reason"]), fmt.Sprint(c["message"])}
		}
	}
	return condition{}
}

// awaitCondition waits until a condition of a Cluster is as wanted.
func awaitCondition(t testing.TB, limit time.Duration, name, kind string, want func(condition) bool) condition {
	t.Helper()
	api := clusterObjects(t)
	var got condition
	labtest.Eventually(t, within(limit), func(ctx context.Context) error {
		cluster, err := api.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got = conditionOf(cluster, kind); !want(got) {
			return fmt.Errorf("condition %s of %s is %s", kind, name, got)
		}
		return nil
	})
	return got
}

func isTrue(c condition) bool { return c.status == "True" }

// awaitLive waits until members are Ready, loaded and followed.
func awaitLive(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		awaitCondition(t, time.Minute, name, "Ready", isTrue)
		awaitCondition(t, time.Minute, name, "CacheSynced", isTrue)
	}
	labtest.Eventually(t, within(20*time.Second), func(ctx context.Context) error {
		a, err := ask(ctx, labtest.Config(t, world.System), "/api/v1/pods?limit=1")
		if err != nil {
			return err
		}
		if a.code != http.StatusOK || len(a.warnings) > 0 {
			return fmt.Errorf("a list of Pods answers %d, warnings %q", a.code, a.warnings)
		}
		return nil
	})
}

// answer to one request.
type answer struct {
	code     int
	body     []byte
	warnings []string
	took     time.Duration // until the end of the body
}

// warns says whether a warning names the cluster.
func (a answer) warns(cluster string) bool {
	for _, w := range a.warnings {
		if strings.Contains(w, cluster) {
			return true
		}
	}
	return false
}

// ask makes a GET and reads the answer whole.
func ask(ctx context.Context, config *rest.Config, path string) (answer, error) {
	started := time.Now()
	res, err := open(ctx, config, path)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close() //nolint:errcheck // read to its end below
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, fmt.Errorf("GET %s: %w", path, err)
	}
	return answer{code: res.StatusCode, body: body, warnings: res.Header.Values("Warning"), took: time.Since(started)}, nil
}

// open makes a GET and leaves the body to the caller.
func open(ctx context.Context, config *rest.Config, path string) (*http.Response, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return openBy(ctx, client, config, path)
}

// openBy makes a GET with a client of the caller's.
func openBy(ctx context.Context, client *http.Client, config *rest.Config, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(config.Host, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	return client.Do(req)
}

// barePod is a Pod that kwok runs.
func barePod(ns, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			Containers:                    []corev1.Container{{Name: "c", Image: "registry.example.com/c:1"}},
			TerminationGracePeriodSeconds: new(int64),
		},
	}
}

// runPod makes a Pod in a member and waits until it runs.
func runPod(t testing.TB, m *lab.Member, ns, name string) *corev1.Pod {
	t.Helper()
	pods := labtest.Client(t, m).CoreV1().Pods(ns)
	if _, err := pods.Create(t.Context(), barePod(ns, name), metav1.CreateOptions{}); err != nil {
		t.Fatalf("Pod %s/%s in %s: %v", ns, name, m.Name(), err)
	}
	var pod *corev1.Pod
	labtest.Eventually(t, within(90*time.Second), func(ctx context.Context) error {
		var err error
		if pod, err = pods.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("Pod %s in %s is %s", name, m.Name(), pod.Status.Phase)
		}
		return nil
	})
	return pod
}

// served waits until the endpoint serves a Pod of a cluster.
func served(t testing.TB, limit time.Duration, ns, name, cluster string) *corev1.Pod {
	t.Helper()
	pods := labtest.Client(t, world.System).CoreV1().Pods(ns)
	var pod *corev1.Pod
	labtest.Eventually(t, within(limit), func(ctx context.Context) error {
		var err error
		if pod, err = pods.Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		if pod.Labels[clusterLabel] != cluster {
			return fmt.Errorf("Pod %s is served from %q, want %q", name, pod.Labels[clusterLabel], cluster)
		}
		return nil
	})
	return pod
}

// restartEndpoint kills the endpoint and starts it again.
func restartEndpoint(t testing.TB) {
	t.Helper()
	if err := world.System.Kill(endpoint); err != nil {
		t.Fatal(err)
	}
	startEndpoint(t)
}

func startEndpoint(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within(time.Minute))
	defer cancel()
	if err := world.System.Restart(ctx); err != nil {
		t.Fatalf("start the endpoint: %v", err)
	}
}
