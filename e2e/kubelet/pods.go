package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var (
	// ErrNotFound says that a Pod or a container does not exist.
	ErrNotFound = errors.New("not found")
	// ErrBadRequest says that a request can have no answer as it stands.
	ErrBadRequest = errors.New("bad request")
)

// refusal is an ErrBadRequest whose text is a kubelet's.
type refusal struct{ text string }

func (r refusal) Error() string      { return r.text }
func (refusal) Is(target error) bool { return target == ErrBadRequest }

func refuse(format string, args ...any) error { return refusal{fmt.Sprintf(format, args...)} }

// APIPods asks a kube-apiserver for Pods.
type APIPods struct {
	Server string // https://HOST:PORT
	Client *http.Client
}

// lookupLimit bounds a question to an API that may be frozen.
const lookupLimit = 5 * time.Second

// Get implements PodGetter.
func (a APIPods) Get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	address := a.Server + "/api/v1/namespaces/" + url.PathEscape(namespace) + "/pods/" + url.PathEscape(name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := a.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	switch {
	case err != nil:
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("pod %q: %w", name, ErrNotFound)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("pod %s/%s: the API answered %s", namespace, name, resp.Status)
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(body, pod); err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, err)
	}
	return pod, nil
}

// hasContainer reports whether the Pod declares it; the name then is a DNS
// label and may become part of a path.
func hasContainer(pod *corev1.Pod, name string) bool {
	if name == "" || strings.ContainsAny(name, "/\\.") {
		return false
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == name {
			return true
		}
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name == name {
			return true
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if c.Name == name {
			return true
		}
	}
	return false
}

// containerStatus returns nil while the node has reported none.
func containerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func isRunning(pod *corev1.Pod, name string) bool {
	status := containerStatus(pod, name)
	return status != nil && status.State.Running != nil
}

// checkLog says why a container has no log to show, as a kubelet does.
func checkLog(pod *corev1.Pod, name string, previous bool) error {
	status := containerStatus(pod, name)
	switch {
	case previous && (status == nil || status.RestartCount == 0):
		return refuse("previous terminated container %q in pod %q not found", name, pod.Name)
	case previous:
		return nil
	case status == nil:
		return refuse("container %q in pod %q is not available", name, pod.Name)
	case status.State.Waiting != nil && status.RestartCount == 0:
		return refuse("container %q in pod %q is waiting to start: %s", name, pod.Name, status.State.Waiting.Reason)
	}
	return nil
}
