package labtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

// The whole: two members, the endpoint killed in the middle, every Pod served.
func TestSystemSurvivesKill(t *testing.T) {
	members := Members(t, 2)
	system := System(t, lab.SystemOptions{}, members...)
	client, err := system.Client()
	if err != nil {
		t.Fatal(err)
	}
	createWeb(t, client, 4)
	podsOfBoth := func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
		if err != nil {
			return err
		}
		perCluster := map[string]int{}
		for _, pod := range pods.Items {
			if pod.Status.Phase == corev1.PodRunning {
				perCluster[pod.Labels["isthmus.dev/cluster"]]++
			}
		}
		if perCluster["m1"] != 2 || perCluster["m2"] != 2 {
			return fmt.Errorf("running Pods per cluster: %v, want 2 and 2", perCluster)
		}
		return nil
	}
	Eventually(t, 2*time.Minute, podsOfBoth)

	address, before := system.Address(), system.PID("multicluster-apiserver")
	if err := system.Kill("multicluster-apiserver"); err != nil {
		t.Fatal(err)
	}
	if pid := system.PID("multicluster-apiserver"); pid != 0 {
		t.Fatalf("pid %d after the kill", pid)
	}
	if err := system.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if system.Address() != address {
		t.Fatalf("the endpoint moved from %s to %s without need", address, system.Address())
	}
	if after := system.PID("multicluster-apiserver"); after == before || after == 0 {
		t.Fatalf("pid %d, before the kill %d", after, before)
	}
	Eventually(t, time.Minute, podsOfBoth)
}

func createWeb(t *testing.T, client kubernetes.Interface, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := client.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
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
}
