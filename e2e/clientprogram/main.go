// Command clientprogram does what a PaaS does with one cluster, with plain
// client-go: it creates a Deployment, waits for it with an informer on Pods,
// reads logs, executes a command, deletes a Pod and sees its replacement.
// Only KUBECONFIG says what it talks to.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"
)

const replicas = 6

func main() {
	namespace := flag.String("namespace", "clientprogram", "namespace to work in; made when missing")
	timeout := flag.Duration("timeout", 2*time.Minute, "limit of the whole run")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	if err := run(ctx, *namespace); err != nil {
		fmt.Fprintln(os.Stderr, "FAILED:", err)
		os.Exit(1)
	}
	fmt.Println("PASSED")
}

type program struct {
	config    *rest.Config
	client    kubernetes.Interface
	namespace string
	pods      corelisters.PodNamespaceLister
}

func run(ctx context.Context, namespace string) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("load KUBECONFIG: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	p := &program{config: config, client: client, namespace: namespace}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"create the namespace", p.createNamespace},
		{"start an informer on Pods", p.startInformer},
		{"create a Deployment of 6 replicas", p.createDeployment},
		{"wait for 6 running Pods in the informer", p.waitRunning},
		{"wait for the Deployment to be complete", p.waitComplete},
		{"read logs", p.readLogs},
		{"execute a command", p.execute},
		{"delete a Pod and see its replacement", p.replace},
		{"delete the Deployment and see the Pods go", p.cleanUp},
	}
	for _, s := range steps {
		start := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("ok  %-45s %s\n", s.name, time.Since(start).Round(time.Millisecond))
	}
	return nil
}

func (p *program) createNamespace(ctx context.Context) error {
	_, err := p.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (p *program) startInformer(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(p.client, 0, informers.WithNamespace(p.namespace))
	informer := factory.Core().V1().Pods()
	p.pods = informer.Lister().Pods(p.namespace)
	synced := informer.Informer().HasSynced
	factory.Start(ctx.Done())
	limit, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if !cache.WaitForCacheSync(limit.Done(), synced) {
		return errors.New("the informer did not sync within 20 s")
	}
	return nil
}

func (p *program) createDeployment(ctx context.Context) error {
	labels := map[string]string{"app": "web"}
	_, err := p.client.AppsV1().Deployments(p.namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// running lists the Pods that run and are not being deleted.
func (p *program) running() ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
	if err != nil {
		return nil, err
	}
	all, err := p.pods.List(selector)
	if err != nil {
		return nil, err
	}
	var out []*corev1.Pod
	for _, pod := range all {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			out = append(out, pod)
		}
	}
	return out, nil
}

func until(ctx context.Context, condition func() (bool, error)) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return condition() })
}

func (p *program) waitRunning(ctx context.Context) error {
	var seen int
	err := until(ctx, func() (bool, error) {
		pods, err := p.running()
		seen = len(pods)
		return seen == replicas, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d Pods run: %w", seen, replicas, err)
	}
	return nil
}

func (p *program) waitComplete(ctx context.Context) error {
	var last appsv1.DeploymentStatus
	err := until(ctx, func() (bool, error) {
		d, err := p.client.AppsV1().Deployments(p.namespace).Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		last = d.Status
		return last.ObservedGeneration >= d.Generation && last.UpdatedReplicas == replicas && last.AvailableReplicas == replicas, nil
	})
	if err != nil {
		return fmt.Errorf("status %+v: %w", last, err)
	}
	return nil
}

func (p *program) somePod() (*corev1.Pod, error) {
	pods, err := p.running()
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, errors.New("no Pod runs")
	}
	return pods[len(pods)-1], nil
}

func (p *program) readLogs(ctx context.Context) error {
	pods, err := p.running()
	if err != nil {
		return err
	}
	for _, pod := range pods {
		stream, err := p.client.CoreV1().Pods(p.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return fmt.Errorf("logs of %s: %w", pod.Name, err)
		}
		text, err := io.ReadAll(stream)
		if err = errors.Join(err, stream.Close()); err != nil {
			return fmt.Errorf("logs of %s: %w", pod.Name, err)
		}
		if len(text) == 0 {
			return fmt.Errorf("logs of %s are empty", pod.Name)
		}
	}
	return nil
}

func (p *program) execute(ctx context.Context) error {
	pod, err := p.somePod()
	if err != nil {
		return err
	}
	url := p.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "web", Command: []string{"cat"}, Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	websocket, err := remotecommand.NewWebSocketExecutor(p.config, "GET", url.String())
	if err != nil {
		return err
	}
	var out, errOut bytes.Buffer
	const text = "through the one endpoint"
	if err := websocket.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader(text), Stdout: &out, Stderr: &errOut}); err != nil {
		return fmt.Errorf("%w (stderr %q)", err, errOut.String())
	}
	if out.String() != text {
		return fmt.Errorf("cat answered %q", out.String())
	}
	return nil
}

func (p *program) replace(ctx context.Context) error {
	pod, err := p.somePod()
	if err != nil {
		return err
	}
	if err := p.client.CoreV1().Pods(p.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err = until(ctx, func() (bool, error) {
		pods, err := p.running()
		if err != nil || len(pods) != replicas {
			return false, err
		}
		for _, other := range pods {
			if other.UID == pod.UID {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("no replacement of %s: %w", pod.Name, err)
	}
	return nil
}

func (p *program) cleanUp(ctx context.Context) error {
	if err := p.client.AppsV1().Deployments(p.namespace).Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		pods, err := p.running()
		return len(pods) == 0, err
	})
}
