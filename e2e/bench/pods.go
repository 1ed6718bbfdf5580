package bench

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	namespaces = 20
	nodes      = 10
	// percentLabel selects one Pod of a hundred by each of its values.
	percentLabel = "bench.isthmus.dev/percent"
	// tickAnnotation carries the number of the last change that churn made.
	tickAnnotation = "bench.isthmus.dev/tick"
)

func namespaceOf(i int) string { return fmt.Sprintf("bench-%02d", i%namespaces) }

// digest is text that no compressor can guess from the other Pods.
func digest(what string, i int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", what, i))
	return hex.EncodeToString(sum[:])
}

// workloadOf groups 25 Pods of a namespace under one ReplicaSet.
func workloadOf(i int) (app, replicaSet string, uid types.UID) {
	app = fmt.Sprintf("shop-%03d", i/namespaces/25)
	hash := digest("replicaset "+namespaceOf(i)+app, 0)
	return app, app + "-" + hash[:10], types.UID(fmt.Sprintf("%s-%s-4%s-a%s-%s", hash[:8], hash[8:12], hash[12:15], hash[15:18], hash[18:30]))
}

// podName is unique among all Pods of a run.
func podName(i int) string {
	_, rs, _ := workloadOf(i)
	return rs + "-" + digest("pod", i)[:5] + fmt.Sprintf("%05d", i)
}

// pod is what the ReplicaSet controller creates, already bound to a node.
func pod(i int) *corev1.Pod {
	app, rs, uid := workloadOf(i)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(i), Name: podName(i), GenerateName: rs + "-",
			Labels: map[string]string{
				"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop",
				"pod-template-hash": rs[len(app)+1:], percentLabel: fmt.Sprint(i / namespaces % 100),
			},
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": digest("config "+app, 0),
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs, UID: uid,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
		},
	}
	p.Spec = corev1.PodSpec{
		NodeName:           fmt.Sprintf("fake-%d", i%nodes),
		ServiceAccountName: "default",
		Containers:         []corev1.Container{serverContainer(app), sidecarContainer()},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app + "-config"}}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
	return p
}

func resources(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
	}
}

func serverContainer(app string) corev1.Container {
	return corev1.Container{
		Name: "server", Image: "registry.example.com/shop/" + app + ":1.2.3", Args: []string{"--port=8080", "--config=/etc/shop/config.yaml"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		Env: []corev1.EnvVar{
			{Name: "DATABASE", Value: "postgres://" + app + ".db.example.com:5432/" + app},
			{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: app}, Key: "token"}}},
		},
		Resources: resources("250m", "256Mi"),
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("http")}},
			PeriodSeconds: 10, TimeoutSeconds: 2,
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/shop"}, {Name: "scratch", MountPath: "/tmp"}},
	}
}

func sidecarContainer() corev1.Container {
	return corev1.Container{
		Name: "agent", Image: "registry.example.com/platform/agent:0.9.1",
		Env:       []corev1.EnvVar{{Name: "INTERVAL", Value: "15s"}},
		Resources: resources("50m", "64Mi"),
	}
}

func podIP(i int) string { return fmt.Sprintf("10.%d.%d.%d", 100+i>>16&63, i>>8&255, i&255) }

// podStatus is what a kubelet reports of the Pod once it runs.
func podStatus(i int, at metav1.Time) corev1.PodStatus {
	app, _, _ := workloadOf(i)
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &at, QOSClass: corev1.PodQOSBurstable,
		HostIP: fmt.Sprintf("192.168.0.%d", 10+i%nodes), PodIP: podIP(i),
		HostIPs: []corev1.HostIP{{IP: fmt.Sprintf("192.168.0.%d", 10+i%nodes)}}, PodIPs: []corev1.PodIP{{IP: podIP(i)}},
	}
	for n, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at.Add(time.Duration(n) * time.Second)),
		})
	}
	for _, c := range []struct{ name, image string }{{"agent", "platform/agent:0.9.1"}, {"server", "shop/" + app + ":1.2.3"}} {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.name, Ready: true, Started: new(true), Image: "registry.example.com/" + c.image,
			ImageID:     "registry.example.com/" + c.image + "@sha256:" + digest("image "+c.image, 0),
			ContainerID: "containerd://" + digest("container "+c.name, i),
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
		})
	}
	return status
}
