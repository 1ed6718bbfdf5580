package gateway

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// realisticPod is about what a Deployment's Pod is after it has started.
func realisticPod(i int) *corev1.Pod {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, i%60, 0, time.UTC))
	yes, no := true, false
	p := pod("ns-"+fmt.Sprint(i%50), fmt.Sprintf("web-7d9c8b6f5-%05d", i))
	p.GenerateName = "web-7d9c8b6f5-"
	p.UID = types.UID(fmt.Sprintf("5f0e1a52-6b0f-4c0e-9d55-%012d", i))
	p.CreationTimestamp = at
	p.Labels = map[string]string{"app": "web", "pod-template-hash": "7d9c8b6f5", "app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop"}
	p.Annotations = map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "note": "a <b> & \"c\"\n"}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d9c8b6f5", UID: "1d1f1c6f-9a39-4e9f-8f5b-4f5c9b0a7d11", Controller: &yes, BlockOwnerDeletion: &yes}}
	for _, manager := range []string{"kube-controller-manager", "kubelet"} {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{\"uid\":\"1d1f1c6f-9a39-4e9f-8f5b-4f5c9b0a7d11\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{},"f:name":{},"f:ports":{},"f:resources":{".":{},"f:limits":{},"f:requests":{}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`)})
	}
	grace, mode, seconds := int64(30), int32(420), int64(3607)
	resources := corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("256Mi")}
	p.Spec = corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		}}}}},
		Containers: []corev1.Container{{
			Name: "c", Image: "registry.example.com/shop/web:v1.2.3", Args: []string{"--port=8080", "--verbose"},
			Ports:     []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: "TCP"}},
			Env:       []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}}},
			Resources: corev1.ResourceRequirements{Limits: resources, Requests: resources},
			LivenessProbe: &corev1.Probe{
				ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http"), Scheme: "HTTP"}},
				TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
			},
			ReadinessProbe:           &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8080)}}, PeriodSeconds: 10},
			VolumeMounts:             []corev1.VolumeMount{{Name: "kube-api-access", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			TerminationMessagePath:   "/dev/termination-log",
			TerminationMessagePolicy: "File", ImagePullPolicy: "IfNotPresent",
		}},
		RestartPolicy: "Always", TerminationGracePeriodSeconds: &grace, DNSPolicy: "ClusterFirst", ServiceAccountName: "default",
		NodeName: fmt.Sprintf("node-%d", i%20), SecurityContext: &corev1.PodSecurityContext{}, SchedulerName: "default-scheduler", EnableServiceLinks: &no,
		Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &grace}},
	}
	for _, c := range []corev1.PodConditionType{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: c, Status: "True", LastTransitionTime: at})
	}
	p.Status.Phase = "Running"
	p.Status.HostIP, p.Status.PodIP, p.Status.StartTime, p.Status.QOSClass = "10.0.0.1", "10.1.2.3", &at, "Burstable"
	p.Status.HostIPs, p.Status.PodIPs = []corev1.HostIP{{IP: "10.0.0.1"}}, []corev1.PodIP{{IP: "10.1.2.3"}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", Ready: true, Started: &yes, RestartCount: 1, Image: "registry.example.com/shop/web:v1.2.3",
		ImageID: "registry.example.com/shop/web@sha256:9bb1f4d2", ContainerID: "containerd://0123456789abcdef", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
	}}
	return p
}

// discardWriter is a client that takes everything at once.
type discardWriter struct {
	header http.Header
	n      int
}

func (d *discardWriter) Header() http.Header { return d.header }
func (d *discardWriter) WriteHeader(int)     {}
func (d *discardWriter) Write(p []byte) (int, error) {
	d.n += len(p)
	return len(p), nil
}

// BenchmarkReference is what a server does that holds decoded objects: it
// encodes the whole list with the codec of the API.
func BenchmarkReference(b *testing.B) {
	const n = 2000
	list := &corev1.PodList{}
	for i := range n {
		list.Items = append(list.Items, *realisticPod(i))
	}
	for _, media := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		b.Run(media, func(b *testing.B) {
			info, _ := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), media)
			encoder := legacyscheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion)
			b.ReportAllocs()
			for b.Loop() {
				w := &discardWriter{}
				if err := encoder.Encode(list, w); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/object")
		})
	}
}
