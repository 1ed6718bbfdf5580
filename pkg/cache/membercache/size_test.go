//go:build !race

package membercache

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/sequence"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// realisticPod is about what a Deployment's Pod weighs: 4.4 KB in protobuf.
func realisticPod(i int) *corev1.Pod {
	app := fmt.Sprintf("app-%d", i/50)
	now := metav1.NewTime(time.Unix(1750000000+int64(i), 0))
	fields := make([]byte, 0, 2600)
	for len(fields) < 1300 {
		fields = fmt.Appendf(fields, `"f:key-%d":{".":{},"f:name":{},"f:value":{}},`, len(fields))
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprintf("team-%d", i/1000), Name: fmt.Sprintf("%s-7d9f8c6b5d-%05d", app, i),
			UID: types.UID(fmt.Sprintf("%08x-aaaa-bbbb-cccc-%012x", i, i)), ResourceVersion: fmt.Sprint(1000 + i),
			CreationTimestamp: now,
			Labels:            map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7d9f8c6b5d", "tier": "backend"},
			Annotations:       map[string]string{"prometheus.io/scrape": "true", "checksum/config": fmt.Sprintf("%064d", i/50)},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-7d9f8c6b5d", UID: types.UID(fmt.Sprintf("rs-%030d", i/50)), Controller: new(true)}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(string(fields))},
				{Manager: "kubelet", Operation: "Update", APIVersion: "v1", Subresource: "status", FieldsV1: metav1.NewFieldsV1(string(fields[:900]))},
			},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d", i%200), RestartPolicy: "Always", SchedulerName: "default-scheduler", ServiceAccountName: "default",
			Containers: []corev1.Container{{Name: "main", Image: "registry.example.com/shop/" + app + ":v1.2.3", Env: make([]corev1.EnvVar, 0, 12)}},
		},
		Status: corev1.PodStatus{
			Phase: "Running", PodIP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255),
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, ImageID: fmt.Sprintf("sha256:%064d", i/50), ContainerID: fmt.Sprintf("containerd://%064d", i)}},
		},
	}
	for e := range 12 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", e), Value: fmt.Sprintf("value of %s %d", app, e)})
	}
	for _, c := range []corev1.PodConditionType{"Initialized", "Ready", "ContainersReady", "PodScheduled"} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: "True", LastTransitionTime: now})
	}
	return pod
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestOverheadPerPod bounds what a Pod costs beyond its bytes.
func TestOverheadPerPod(t *testing.T) {
	const pods = 20000
	seq, err := sequence.Open(context.Background(), clock.RealClock{}, &sequence.Memory{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Clock: seq})
	if err != nil {
		t.Fatal(err)
	}
	col := c.byResource[Pods.GroupVersionResource]
	source := col.Join("m1", 1, false)
	before := heap()
	source.Begin()
	var put time.Duration
	for i := range pods {
		raw, err := realisticPod(i).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := source.Put(raw); err != nil {
			t.Fatal(err)
		}
		put += time.Since(start)
	}
	source.End("100000")
	used := heap() - before
	stats := col.Stats()
	history := col.Store().History()
	perPod, overhead := used/pods, (int64(used)-stats.Bytes)/pods
	t.Logf("%d bytes a Pod, %d of them beyond its %d bytes; history of %d events; %s a Put", perPod, overhead, stats.Bytes/pods, stats.Log, put/pods)
	_ = history
	if overhead > 1024 {
		t.Errorf("a Pod costs %d bytes beyond its own", overhead)
	}
	runtime.KeepAlive(c)
}

// BenchmarkPut takes a Pod from bytes to the log.
func BenchmarkPut(b *testing.B) {
	seq, err := sequence.Open(context.Background(), clock.RealClock{}, &sequence.Memory{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	c, err := New(Config{Clock: seq})
	if err != nil {
		b.Fatal(err)
	}
	source := c.byResource[Pods.GroupVersionResource].Join("m1", 1, false)
	pods := make([][]byte, 1000)
	for i := range pods {
		if pods[i], err = realisticPod(i).Marshal(); err != nil {
			b.Fatal(err)
		}
	}
	source.Begin()
	source.End("1")
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		pod, err := wire.Rewrite(cache.Protobuf, pods[i%1000], wire.Edit{ResourceVersion: fmt.Sprint(5000 + i)})
		if err != nil {
			b.Fatal(err)
		}
		if err := source.Put(pod); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
