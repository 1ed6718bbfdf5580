package spine

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

const (
	applyUser    = "system:serviceaccount:isthmus-system:isthmus-apply"
	readUser     = "system:serviceaccount:isthmus-system:isthmus-read"
	ourNamespace = "isthmus-system"
)

// kubectl runs kubectl against the endpoint and fails the test with it.
func kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	return kubectlAt(t, world.system.Kubeconfig(), stdin, args...)
}

func kubectlAt(t testing.TB, kubeconfig, stdin string, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, kubeconfig, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryKubectl(t testing.TB, kubeconfig, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, world.m1.Artifacts().Path("kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.WaitDelay = 2 * time.Second
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, out.String(), errOut.String())
	}
	return out.String(), nil
}

// command runs a subcommand of the endpoint's program.
func command(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within(2*time.Minute))
	defer cancel()
	out, err := world.system.Command(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func restart(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), within(3*time.Minute))
	defer cancel()
	if err := world.system.Restart(ctx); err != nil {
		t.Fatal(err)
	}
}

// stop ends the endpoint, gracefully unless hard.
func stop(t testing.TB, hard bool) {
	t.Helper()
	var err error
	if hard {
		err = world.system.Kill(endpoint)
	} else {
		err = world.system.StopProcess(endpoint, within(30*time.Second))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func clientOf(t testing.TB, c interface {
	Client() (kubernetes.Interface, error)
},
) kubernetes.Interface {
	t.Helper()
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// namespace makes one through the endpoint and removes it with the test.
func namespace(t testing.TB, base string) string {
	t.Helper()
	var b [3]byte
	if _, err := rand.Read(b[:]); err != nil {
		t.Fatal(err)
	}
	ns := base + "-" + hex.EncodeToString(b[:])
	kubectl(t, "", "create", "namespace", ns)
	t.Cleanup(func() {
		if _, err := tryKubectl(t, world.system.Kubeconfig(), "", "delete", "namespace", ns, "--wait=false", "--ignore-not-found"); err != nil {
			t.Log(err)
		}
	})
	return ns
}

// deployment is a template of one small container.
func deployment(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {terminationGracePeriodSeconds: 1, containers: [{name: c, image: "registry.example.com/web:1"}]}
---
`, name, replicas)
}

// duplicated places all Deployments and ConfigMaps of a namespace in m1 and m2,
// whole.
const duplicated = `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}, {apiVersion: v1, kind: ConfigMap}]
  placement: {clusterAffinity: {clusterNames: [m1, m2]}}
---
`

func getDeployment(ctx context.Context, t testing.TB, m *lab.Member, ns, name string) (*appsv1.Deployment, error) {
	return clientOf(t, m).AppsV1().Deployments(ns).Get(ctx, name, metav1.GetOptions{})
}

// awaitReplicas waits until a copy in a member wants so many.
func awaitReplicas(t testing.TB, m *lab.Member, ns, name string, want int32) {
	t.Helper()
	labtest.Eventually(t, within(45*time.Second), func(ctx context.Context) error {
		d, err := getDeployment(ctx, t, m, ns, name)
		if err != nil {
			return err
		}
		if *d.Spec.Replicas != want {
			return fmt.Errorf("%s in %s wants %d replicas, not %d", name, m.Name(), *d.Spec.Replicas, want)
		}
		return nil
	})
}

// awaitCondition waits for a condition of a Cluster.
func awaitCondition(t testing.TB, cluster, condition, want string) {
	t.Helper()
	labtest.Eventually(t, within(60*time.Second), func(context.Context) error {
		said, err := tryKubectl(t, world.system.Kubeconfig(), "", "get", "cluster", cluster,
			"-o", `jsonpath={range .status.conditions[?(@.type=="`+condition+`")]}{.status} {.reason}: {.message}{end}`)
		if err != nil {
			return err
		}
		if !strings.Contains(said, want) {
			return fmt.Errorf("%s of %s says %q, want %q", condition, cluster, said, want)
		}
		return nil
	})
}

// audited is one request that a member has answered.
type audited struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		APIGroup, Resource, Subresource, Namespace, Name string
	} `json:"objectRef"`
	RequestURI string           `json:"requestURI"`
	UserAgent  string           `json:"userAgent"`
	Received   metav1.MicroTime `json:"requestReceivedTimestamp"`
}

// changes says whether a request of the engine changes what runs: the fence and
// our identities aside.
func (a audited) changes() bool {
	switch a.Verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default:
		return false
	}
	o := a.ObjectRef
	return o.Namespace != ourNamespace && !strings.HasSuffix(o.APIGroup, "authorization.k8s.io") && !strings.HasSuffix(o.APIGroup, "authentication.k8s.io")
}

// auditLog reads what is appended to a member's audit log from now on.
type auditLog struct {
	path  string
	begin int64
}

func auditFromNow(t testing.TB, m *lab.Member) auditLog {
	t.Helper()
	info, err := os.Stat(m.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	return auditLog{m.AuditLog(), info.Size()}
}

// writes are the changes that the engine made.
func (l auditLog) writes(t testing.TB) []audited {
	t.Helper()
	f, err := os.Open(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read
	if _, err := f.Seek(l.begin, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	var out []audited
	for line := range bytes.Lines(data) {
		var a audited
		var syntax *json.SyntaxError
		if err := json.Unmarshal(line, &a); errors.As(err, &syntax) {
			continue // begun in the middle, or being written
		} else if err != nil {
			t.Fatalf("%s: %v: %.200s", l.path, err, line)
		}
		if a.changes() && (a.User.Username == applyUser || a.User.Username == readUser) {
			out = append(out, a)
		}
	}
	return out
}

func describe(all []audited) string {
	var b strings.Builder
	for _, a := range all[:min(len(all), 10)] {
		fmt.Fprintf(&b, "%s %s (%s)\n", a.Verb, a.RequestURI, a.UserAgent)
	}
	return fmt.Sprintf("%d writes:\n%s", len(all), b.String())
}
