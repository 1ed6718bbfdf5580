package outage

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const configMapsOnM3 = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: backlog}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {backlog: "true"}}}]
  placement: {clusterAffinity: {clusterNames: [m3]}}
`

// A policy touches hundreds of templates at once, and their cluster takes fifty
// writes a second: who creates or changes one meanwhile does not wait for them,
// and they all arrive nevertheless. It asks for more than holds on a busy
// machine, where the control plane's own writes are what is waited for:
// ISTHMUS_E2E_BACKLOG says how many templates, and nothing is tried without it.
func TestNewGoesBeforeBacklog(t *testing.T) {
	const pace = 20 * time.Millisecond
	backlog, err := strconv.Atoi(cmp.Or(os.Getenv("ISTHMUS_E2E_BACKLOG"), "0"))
	if err != nil {
		t.Fatal(err)
	}
	if backlog == 0 {
		t.Skip("ISTHMUS_E2E_BACKLOG is not set")
	}
	injector, kubeconfig := beforeM3(t)
	ns := memberNamespace(t, "backlog", world.m3)
	labtest.MustKubectl(t, world.System.Kubeconfig(), "", "create", "namespace", ns)
	t.Cleanup(func() {
		if res := labtest.Kubectl(t, world.System.Kubeconfig(), "", "delete", "namespace", ns, "--wait=false"); res.Code != 0 {
			t.Errorf("delete namespace %s: %s", ns, res.Err)
		}
	})
	injector.Set(func(r *http.Request) lab.Fault {
		if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/"+ns+"/configmaps/") {
			time.Sleep(pace) // one at a time: this is called under a lock
		}
		return lab.Fault{}
	})
	client := unlimited(t, labtest.Config(t, world.System))
	createConfigMaps(t, client, ns, backlog)
	joinM3By(t, kubeconfig)
	awaitLive(t, "m3")
	direct := labtest.Client(t, world.m3)
	arrived := func(ctx context.Context) (map[string]string, error) {
		list, err := direct.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{LabelSelector: "backlog=true"})
		out := map[string]string{}
		if err == nil {
			for _, c := range list.Items {
				out[c.Name] = c.Data["round"]
			}
		}
		return out, err
	}

	labtest.MustKubectl(t, world.System.Kubeconfig(), configMapsOnM3, "-n", ns, "apply", "-f", "-")
	labtest.Eventually(t, settles, func(ctx context.Context) error {
		there, err := arrived(ctx)
		if err == nil && len(there) < 20 {
			err = fmt.Errorf("%d have arrived", len(there))
		}
		return err
	})
	first := configMap("new")
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), first, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, round := range []string{"1", "2"} {
		begin := time.Now()
		first.Data = map[string]string{"round": round}
		if _, err := client.CoreV1().ConfigMaps(ns).Update(t.Context(), first, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		var there map[string]string
		labtest.Eventually(t, settles, func(ctx context.Context) (err error) {
			if there, err = arrived(ctx); err == nil && there["new"] != round {
				err = fmt.Errorf("round %q of it has arrived, with %d others", there["new"], len(there))
			}
			return err
		})
		t.Logf("round %s arrived after %s, when %d of %d others were there", round, time.Since(begin).Round(time.Millisecond), len(there)-1, backlog)
		if len(there) > backlog/2 {
			t.Errorf("round %s of a new template arrived when %d of %d others were there", round, len(there)-1, backlog)
		}
	}
	injector.Set(nil)
	labtest.Eventually(t, settles, func(ctx context.Context) error {
		there, err := arrived(ctx)
		if err == nil && len(there) != backlog+1 {
			err = fmt.Errorf("%d of %d have arrived", len(there), backlog+1)
		}
		return err
	})
}

// unlimited is a client that does not wait for itself.
func unlimited(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"backlog": "true"}}}
}

func createConfigMaps(t *testing.T, client kubernetes.Interface, ns string, n int) {
	t.Helper()
	const writers = 16
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := w; i < n; i += writers {
				_, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap(fmt.Sprintf("c%04d", i)), metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	if group.Wait(); t.Failed() {
		t.FailNow()
	}
}
