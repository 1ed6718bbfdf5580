package cachetest

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
	nodes      = 200
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

// realisticName is unique among all Pods of a run.
func realisticName(i int) string {
	_, rs, _ := workloadOf(i)
	return rs + "-" + digest("pod", i)[:5] + fmt.Sprintf("%05d", i)
}

// RealisticKey is the namespace and name of a RealisticPod.
func RealisticKey(i int) (namespace, name string) { return namespaceOf(i), realisticName(i) }

// RealisticPod is what a Pod of a Deployment looks like when it runs: two
// containers, probes, volumes, an owner, five conditions, managedFields of three
// managers, about 5.8 KB in protobuf and 8.3 KB as JSON. Names, addresses and
// hashes are of this Pod alone and no compressor can guess them.
func RealisticPod(i int) *corev1.Pod {
	app, rs, uid := workloadOf(i)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespaceOf(i), Name: realisticName(i), GenerateName: rs + "-",
			Labels: map[string]string{
				"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop",
				"pod-template-hash": rs[len(app)+1:], "bench.isthmus.dev/percent": fmt.Sprint(i / namespaces % 100),
			},
			Annotations: map[string]string{
				"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": digest("config "+app, 0),
				"cni.projectcalico.org/containerID": digest("sandbox", i), "cni.projectcalico.org/podIP": podIP(i) + "/32",
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
		Containers:         []corev1.Container{serverContainer(app, i), sidecarContainer()},
		Volumes: []corev1.Volume{
			{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: app + "-config"}}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			tokenVolume(i),
		},
	}
	at := metav1.NewTime(time.Unix(1750000000+int64(i/7), 0))
	hash := digest("pod uid", i)
	p.UID = types.UID(fmt.Sprintf("%s-%s-4%s-a%s-%s", hash[:8], hash[8:12], hash[12:15], hash[15:18], hash[18:30]))
	p.ResourceVersion, p.Generation, p.CreationTimestamp = fmt.Sprint(100000+3*i), 1, at
	p.Spec.RestartPolicy, p.Spec.DNSPolicy, p.Spec.SchedulerName = "Always", "ClusterFirst", "default-scheduler"
	p.Spec.TerminationGracePeriodSeconds, p.Spec.SecurityContext = new(int64(30)), &corev1.PodSecurityContext{}
	p.Spec.Tolerations = []corev1.Toleration{
		{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))},
		{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: new(int64(300))},
	}
	p.Status = podStatus(i, at)
	p.ManagedFields = managers(at, p)
	return p
}

// managers are the field managers of a Pod: its controller, the scheduler and
// the kubelet.
func managers(at metav1.Time, p *corev1.Pod) []metav1.ManagedFieldsEntry {
	owned := `{"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{},"f:cni.projectcalico.org/containerID":{},"f:cni.projectcalico.org/podIP":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{".":{},"f:app.kubernetes.io/name":{},"f:app.kubernetes.io/part-of":{},"f:bench.isthmus.dev/percent":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"` + string(p.OwnerReferences[0].UID) + `\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"agent\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"INTERVAL\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}},"k:{\"name\":\"server\"}":{".":{},"f:args":{},"f:env":{".":{},"k:{\"name\":\"DATABASE\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"POD_IP\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:fieldRef":{}}},"k:{\"name\":\"TOKEN\"}":{".":{},"f:name":{},"f:valueFrom":{".":{},"f:secretKeyRef":{}}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:name":{},"f:protocol":{}}},"f:readinessProbe":{".":{},"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},"f:timeoutSeconds":{}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{},"f:volumeMounts":{".":{},"k:{\"mountPath\":\"/etc/shop\"}":{".":{},"f:mountPath":{},"f:name":{}},"k:{\"mountPath\":\"/tmp\"}":{".":{},"f:mountPath":{},"f:name":{}}}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:serviceAccount":{},"f:serviceAccountName":{},"f:terminationGracePeriodSeconds":{},"f:volumes":{".":{},"k:{\"name\":\"config\"}":{".":{},"f:configMap":{".":{},"f:defaultMode":{},"f:name":{}},"f:name":{}},"k:{\"name\":\"scratch\"}":{".":{},"f:emptyDir":{},"f:name":{}}}}}`
	status := `{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"PodReadyToStartContainers\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"` + p.Status.PodIP + `\"}":{".":{},"f:ip":{}}},"f:startTime":{}}}`
	return []metav1.ManagedFieldsEntry{
		{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(owned)},
		{Manager: "kube-scheduler", Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{".":{},"k:{\"type\":\"PodScheduled\"}":{".":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}}}}`), Subresource: "status"},
		{Manager: "kubelet", Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(status), Subresource: "status"},
	}
}

func resources(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
	}
}

func serverContainer(app string, i int) corev1.Container {
	return corev1.Container{
		Name: "server", Image: "registry.example.com/shop/" + app + ":1.2.3", Args: []string{"--port=8080", "--config=/etc/shop/config.yaml"},
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		Env: []corev1.EnvVar{
			{Name: "DATABASE", Value: "postgres://" + app + ".db.example.com:5432/" + app},
			{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			{Name: "SEED", Value: digest("seed", i)[:32]},
			{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: app}, Key: "token"}}},
		},
		Resources: resources("250m", "256Mi"),
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("http")}},
			PeriodSeconds: 10, TimeoutSeconds: 2,
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/shop"}, {Name: "scratch", MountPath: "/tmp"}, tokenMount(i)},
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
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at.Add(time.Duration(n*(1+i*7919%13)) * time.Second)),
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

func tokenName(i int) string { return "kube-api-access-" + digest("token", i)[:5] }

func tokenMount(i int) corev1.VolumeMount {
	return corev1.VolumeMount{Name: tokenName(i), ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
}

func tokenVolume(i int) corev1.Volume {
	return corev1.Volume{Name: tokenName(i), VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(420)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		},
	}}}
}
