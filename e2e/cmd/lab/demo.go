package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
	"github.com/isthmus-dev/isthmus/e2e/lab"
)

const (
	sampleNamespace = "demo"
	sampleName      = "web"
	sampleReplicas  = int32(6)
	clusterLabel    = "isthmus.dev/cluster"
)

// demoDir is .demo of the repository, wherever the command is called.
func demoDir() string {
	set, err := artifacts.Locate()
	if err != nil {
		return ".demo"
	}
	return filepath.Join(set.Root, ".demo")
}

func demo(ctx context.Context, args []string) error {
	var f upFlags
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.register(flags, demoDir(), true)
	if err := f.parse(flags, args); err != nil {
		return err
	}
	unlock, err := lockDemo(f.dir)
	if err != nil {
		return err
	}
	defer unlock()
	p := newProgress()
	system, members, err := startDemo(ctx, f, p)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted; what did start goes on running: repeat `make demo` to go on, or `make demo-down` to stop it")
		}
		return fmt.Errorf("%w\n\nrepeat `make demo` to try again (it goes on from here), or `make demo-down` and remove %s to start over", err, f.dir)
	}
	if err := deploySample(ctx, system, p); err != nil {
		return fmt.Errorf("%w\n\nthe endpoint runs; its log is %s", err, system.LogPath("multicluster-apiserver"))
	}
	printGuide(f.dir, members)
	return nil
}

// startDemo brings up the members and the endpoint, and joins the members in
// order: the order decides who owns a bare name.
func startDemo(ctx context.Context, f upFlags, p *progress) (*lab.System, []*lab.Member, error) {
	members, err := startMembers(ctx, f, p)
	if err != nil {
		return nil, nil, err
	}
	p.logf("starting the endpoint")
	system, err := lab.StartSystem(ctx, lab.SystemOptions{Dir: filepath.Join(f.dir, "endpoint"), Daemon: true, Logf: p.logf})
	if err != nil {
		return nil, nil, err
	}
	p.logf("the endpoint is ready")
	if err := linkFiles(f.dir, system, members[0]); err != nil {
		return nil, nil, err
	}
	for _, m := range members {
		if err := joinMember(ctx, system, m, p); err != nil {
			return nil, nil, err
		}
	}
	return system, members, nil
}

// joinMember skips a member that is Ready under its present address.
func joinMember(ctx context.Context, system *lab.System, m *lab.Member, p *progress) error {
	client, err := system.Client()
	if err != nil {
		return err
	}
	if cluster, err := getCluster(ctx, client, m.Name()); err == nil && cluster.ready() && cluster.Spec.APIEndpoint == "https://"+m.Address() {
		p.logf("member %s is joined already", m.Name())
		return nil
	}
	p.logf("joining member %s", m.Name())
	if err := system.Join(ctx, m.Name(), m.Kubeconfig()); err != nil {
		return err
	}
	return wait(ctx, p, "member "+m.Name()+" to be Ready", 2*time.Minute, func() error {
		cluster, err := getCluster(ctx, client, m.Name())
		if err != nil {
			return err
		}
		if !cluster.ready() {
			return fmt.Errorf("its conditions: %s", cluster.describe())
		}
		return nil
	})
}

// linkFiles puts what a person needs where it is easy to type.
func linkFiles(dir string, system *lab.System, m *lab.Member) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for link, target := range map[string]string{
		filepath.Join(dir, "kubeconfig"):             system.Kubeconfig(),
		filepath.Join(bin, "kubectl"):                m.Artifacts().Path("kubectl"),
		filepath.Join(bin, "multicluster-apiserver"): m.Artifacts().Product("multicluster-apiserver"),
		filepath.Join(dir, "logs"):                   filepath.Join(system.Dir(), "logs"),
	} {
		if current, err := os.Readlink(link); err == nil && current == target {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("replace %s: %w", link, err)
		}
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	return nil
}

// deploySample creates the sample and waits until its Pods are served as
// available through the endpoint.
func deploySample(ctx context.Context, system *lab.System, p *progress) error {
	client, err := system.Client()
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sampleNamespace}}
	_, err = client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", sampleNamespace, err)
	}
	deployments := client.AppsV1().Deployments(sampleNamespace)
	switch _, err = deployments.Create(ctx, sample(), metav1.CreateOptions{}); {
	case err == nil:
		p.logf("created deployment %s/%s with %d replicas", sampleNamespace, sampleName, sampleReplicas)
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("create the sample: %w", err)
	}
	err = wait(ctx, p, "the sample's Pods", 2*time.Minute, func() error {
		d, err := deployments.Get(ctx, sampleName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want := sampleReplicas
		if d.Spec.Replicas != nil {
			want = *d.Spec.Replicas // a visitor may have scaled it since
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.AvailableReplicas < want {
			return fmt.Errorf("%d of %d replicas are available", d.Status.AvailableReplicas, want)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return reportPods(ctx, client, p)
}

func reportPods(ctx context.Context, client kubernetes.Interface, p *progress) error {
	pods, err := client.CoreV1().Pods(sampleNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + sampleName})
	if err != nil {
		return fmt.Errorf("list the sample's Pods: %w", err)
	}
	counts := map[string]int{}
	var order []string
	for _, pod := range pods.Items {
		cluster := pod.Labels[clusterLabel]
		if counts[cluster] == 0 {
			order = append(order, cluster)
		}
		counts[cluster]++
	}
	var parts []string
	for _, cluster := range order {
		parts = append(parts, fmt.Sprintf("%d in %s", counts[cluster], cluster))
	}
	p.logf("the sample runs: %s", strings.Join(parts, ", "))
	return nil
}

func sample() *appsv1.Deployment {
	labels := map[string]string{"app": sampleName}
	replicas := sampleReplicas
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: sampleName, Namespace: sampleNamespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "nginx", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
				}}},
			},
		},
	}
}

// wait polls and says every ten seconds what it waits for.
func wait(ctx context.Context, p *progress, what string, limit time.Duration, check func() error) error {
	start, said := time.Now(), time.Now()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if time.Since(start) > limit {
			return fmt.Errorf("waited %s for %s: %w", limit, what, err)
		}
		if time.Since(said) > 10*time.Second {
			p.logf("waiting for %s: %s (%v)", what, strconv.Itoa(int(time.Since(start).Seconds()))+"s", err)
			said = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func printGuide(dir string, members []*lab.Member) {
	show := dir
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, dir); err == nil && !strings.HasPrefix(rel, "..") {
			show = rel
		}
	}
	last := members[len(members)-1].Name()
	fmt.Printf(`
One API over %[3]d clusters. Its kubeconfig: %[2]s/kubeconfig

  export KUBECONFIG=%[1]s/kubeconfig PATH=%[1]s/bin:$PATH
  kubectl get clusters,deployments,pods -n demo
  kubectl scale deployment/web -n demo --replicas=9 && kubectl rollout status deployment/web -n demo
  kubectl logs deployment/web -n demo
  kubectl exec -n demo deployment/web -- sh -c 'echo this Pod runs in $CLUSTER'
  kubectl get nodes -l isthmus.dev/cluster=%[4]s

A member on its own: kubectl --kubeconfig %[2]s/members/%[4]s/kubeconfig get pods -A
Logs: %[2]s/logs, %[2]s/members/NAME/logs.  Stop everything: make demo-down
`, dir, show, len(members), last)
}

func demoDown(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("demo-down", flag.ContinueOnError)
	dir := flags.String("dir", demoDir(), "folder given to demo")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := stopAll(*dir, newProgress()); err != nil {
		return err
	}
	fmt.Printf("The state is kept in %s: `make demo` goes on with it, removing the folder starts over.\n", *dir)
	return nil
}
