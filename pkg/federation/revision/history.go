package revision

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Labels under which the members' controllers and kubectl know a revision of a
// StatefulSet or DaemonSet.
const (
	StatefulSetHashLabel = "controller.kubernetes.io/hash"
	DaemonSetHashLabel   = "controller-revision-hash"
)

// Data is what a ControllerRevision of a StatefulSet or DaemonSet holds: the
// strategic merge patch that puts the pod template back. Equal templates have
// equal data; the encoding of a map in JSON is sorted.
func Data(podTemplate map[string]any) ([]byte, error) {
	whole := make(map[string]any, len(podTemplate)+1)
	maps.Copy(whole, podTemplate)
	whole["$patch"] = "replace"
	raw, err := json.Marshal(map[string]any{"spec": map[string]any{"template": whole}})
	if err != nil {
		return nil, fmt.Errorf("pod template: %w", err)
	}
	return raw, nil
}

// Digest tells data of one revision from that of another.
func Digest(data []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(data)
	return h.Sum64()
}

// HistoryHash names a revision as the controller of a cluster does, so that the
// Pods' label controller-revision-hash leads to it: where a member runs the
// template as it is, with the same version of Kubernetes. taken says that
// another revision has a hash already; then the next one is tried, as there.
func HistoryHash(kind string, data []byte, taken func(hash string) bool) (string, error) {
	for collisions := 0; ; collisions++ {
		hash, err := statefulSetHash(data, collisions), error(nil)
		if kind == "DaemonSet" {
			hash, err = daemonSetHash(data, collisions)
		}
		if err != nil || !taken(hash) {
			return hash, err
		}
	}
}

func statefulSetHash(data []byte, collisions int) string {
	h := fnv.New32()
	_, _ = h.Write(data)
	_, _ = h.Write([]byte(strconv.Itoa(collisions)))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

func daemonSetHash(data []byte, collisions int) (string, error) {
	var holder struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &holder); err != nil {
		return "", fmt.Errorf("pod template: %w", err)
	}
	return hashTemplate(&holder.Spec.Template, collisions), nil
}
