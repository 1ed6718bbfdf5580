package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// fillWorkers bounds the writes in flight to one cluster.
const fillWorkers = 16

// Managers of the Pods' fields, as in a cluster: who created the Pod, who gave
// it its address, and who runs it.
const (
	creator = "kube-controller-manager"
	network = "network-agent"
	kubelet = "kubelet"
)

// prepareNamespaces makes the namespaces and what admission asks for in them.
func prepareNamespaces(ctx context.Context, client kubernetes.Interface) error {
	for i := range namespaces {
		name := namespaceOf(i)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := client.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("service account of %s: %w", name, err)
		}
	}
	return nil
}

// createPod writes one Pod as three managers do.
func createPod(ctx context.Context, client kubernetes.Interface, i int) error {
	pods := client.CoreV1().Pods(namespaceOf(i))
	if _, err := pods.Create(ctx, pod(i), metav1.CreateOptions{FieldManager: creator}); err != nil {
		return fmt.Errorf("create Pod %d: %w", i, err)
	}
	address := fmt.Appendf(nil, `{"metadata":{"annotations":{"network.example.com/pod-ip":"%s/32","network.example.com/endpoint":"%s"}}}`, podIP(i), digest("endpoint", i)[:32])
	if _, err := pods.Patch(ctx, podName(i), types.MergePatchType, address, metav1.PatchOptions{FieldManager: network}); err != nil {
		return fmt.Errorf("annotate Pod %d: %w", i, err)
	}
	status, err := json.Marshal(map[string]any{"status": podStatus(i, metav1.Now())})
	if err != nil {
		return fmt.Errorf("status of Pod %d: %w", i, err)
	}
	if _, err := pods.Patch(ctx, podName(i), types.MergePatchType, status, metav1.PatchOptions{FieldManager: kubelet}, "status"); err != nil {
		return fmt.Errorf("status of Pod %d: %w", i, err)
	}
	return nil
}

// fill creates the Pods of each cluster, all clusters at once.
func fill(ctx context.Context, logf Logf, clients map[string]kubernetes.Interface, pods map[string][]int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	total := 0
	var wait sync.WaitGroup
	for name, client := range clients {
		if err := prepareNamespaces(ctx, client); err != nil {
			return fmt.Errorf("cluster %s: %w", name, err)
		}
		total += len(pods[name])
		numbers := make(chan int)
		wait.Go(func() {
			defer close(numbers)
			for _, i := range pods[name] {
				select {
				case numbers <- i:
				case <-ctx.Done():
					return
				}
			}
		})
		for range fillWorkers {
			wait.Go(func() {
				for i := range numbers {
					if err := createPod(ctx, client, i); err != nil {
						cancel(fmt.Errorf("cluster %s: %w", name, err))
						return
					}
					done.Add(1)
				}
			})
		}
	}
	stop := sayEvery(5*time.Second, func() { logf("%d of %d Pods created", done.Load(), total) })
	wait.Wait()
	stop()
	return context.Cause(ctx)
}

// sayEvery calls say until the returned function is called.
func sayEvery(interval time.Duration, say func()) (stop func()) {
	ended := make(chan struct{})
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				say()
			case <-ended:
				return
			}
		}
	}()
	return func() { close(ended) }
}
