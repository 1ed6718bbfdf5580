package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/isthmus-dev/isthmus/pkg/federation/apis/cluster/v1alpha1"
)

const (
	inspectTimeout = 30 * time.Second
	// maxInspectBody bounds one answer of a member to our own questions.
	maxInspectBody = 64 << 20
	summaryPage    = 500
)

// onePod is how a pod counts in a sum of resources.
var onePod = corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(1, resource.DecimalSI)}

// Summary is what a member's nodes and pods add up to.
type Summary struct {
	Nodes     v1alpha1.NodeSummary
	Resources v1alpha1.ResourceSummary
}

// SummarySource adds up nodes and pods without asking the member, from a cache
// that holds them. ok is false while it cannot say.
type SummarySource interface {
	Summarize(ctx context.Context, cluster string) (s Summary, ok bool, err error)
}

// boundedClient is an HTTP client of a member whose answers are cut off where
// no sane answer reaches.
func boundedClient(config *rest.Config) (*http.Client, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("HTTP client: %w", err)
	}
	c.Transport = boundedBody{c.Transport}
	c.Timeout = inspectTimeout
	return c, nil
}

type boundedBody struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedBody) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxInspectBody), resp.Body}
	return resp, nil
}

// discovered is the outcome of one discovery of a member.
type discovered struct {
	version string
	apis    []v1alpha1.APIEnablement
	finding apiFinding
}

// discoverAPIs lists what a member serves. What could not be listed is taken from
// before: an aggregated API that is down has not ceased to be a kind.
func discoverAPIs(ctx context.Context, config *rest.Config, before []v1alpha1.APIEnablement) (discovered, error) {
	httpClient, err := boundedClient(config)
	if err != nil {
		return discovered{}, err
	}
	client, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		return discovered{}, fmt.Errorf("discovery client: %w", err)
	}
	version, err := client.ServerVersionWithContext(ctx)
	if err != nil {
		return discovered{}, fmt.Errorf("version: %w", err)
	}
	_, lists, err := client.ServerGroupsAndResourcesWithContext(ctx)
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partial) {
		return discovered{}, fmt.Errorf("discovery: %w", err)
	}
	var failed map[schema.GroupVersion]error
	if partial != nil {
		failed = partial.Groups
	}
	apis, finding := mergeEnablements(lists, failed, before)
	return discovered{version: excerpt([]byte(version.GitVersion)), apis: apis, finding: finding}, nil
}

// mergeEnablements turns discovery into enablements, sorted.
func mergeEnablements(lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error, before []v1alpha1.APIEnablement) ([]v1alpha1.APIEnablement, apiFinding) {
	byGV := map[string]v1alpha1.APIEnablement{}
	for _, l := range lists {
		e := v1alpha1.APIEnablement{GroupVersion: l.GroupVersion}
		for _, r := range l.APIResources {
			if !strings.Contains(r.Name, "/") {
				e.Resources = append(e.Resources, v1alpha1.APIResource{Name: r.Name, Kind: r.Kind})
			}
		}
		slices.SortFunc(e.Resources, func(a, b v1alpha1.APIResource) int { return cmp.Compare(a.Name, b.Name) })
		if len(e.Resources) > 0 {
			byGV[l.GroupVersion] = e
		}
	}
	var finding apiFinding
	for gv := range failed {
		finding.failed = append(finding.failed, gv.String())
		for _, e := range before {
			if _, listed := byGV[gv.String()]; e.GroupVersion == gv.String() && !listed {
				byGV[e.GroupVersion] = e
			}
		}
	}
	slices.Sort(finding.failed)
	out := make([]v1alpha1.APIEnablement, 0, len(byGV))
	for _, e := range byGV {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b v1alpha1.APIEnablement) int { return cmp.Compare(a.GroupVersion, b.GroupVersion) })
	finding.empty = len(out) == 0
	return out, finding
}

// summarizeLive adds up a member's nodes and pods page by page, holding one
// page at a time. It returns how many objects it read, by which the caller
// spaces its calls.
func summarizeLive(ctx context.Context, config *rest.Config) (Summary, int, error) {
	httpClient, err := boundedClient(config)
	if err != nil {
		return Summary{}, 0, err
	}
	own := rest.CopyConfig(config)
	own.ContentType = "application/vnd.kubernetes.protobuf"
	own.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfigAndClient(own, httpClient)
	if err != nil {
		return Summary{}, 0, fmt.Errorf("client: %w", err)
	}
	var s Summary
	read := 0
	nodes := metav1.ListOptions{Limit: summaryPage}
	for {
		page, err := client.CoreV1().Nodes().List(ctx, nodes)
		if err != nil {
			return Summary{}, read, fmt.Errorf("nodes: %w", err)
		}
		for i := range page.Items {
			s.AddNode(&page.Items[i])
		}
		read += len(page.Items)
		if nodes.Continue = page.Continue; nodes.Continue == "" {
			break
		}
	}
	pods := metav1.ListOptions{Limit: summaryPage, FieldSelector: "status.phase!=Succeeded,status.phase!=Failed"}
	for {
		page, err := client.CoreV1().Pods("").List(ctx, pods)
		if err != nil {
			return Summary{}, read, fmt.Errorf("pods: %w", err)
		}
		for i := range page.Items {
			s.AddPod(&page.Items[i])
		}
		read += len(page.Items)
		if pods.Continue = page.Continue; pods.Continue == "" {
			return s, read, nil
		}
	}
}

// AddNode counts a node. Only nodes on which a pod could start add to what is
// allocatable.
func (s *Summary) AddNode(node *corev1.Node) {
	s.Nodes.TotalNum++
	ready := slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if ready {
		s.Nodes.ReadyNum++
	}
	if ready && !node.Spec.Unschedulable {
		addTo(&s.Resources.Allocatable, node.Status.Allocatable)
	}
}

// AddPod counts what a pod asks for, unless it has ended.
func (s *Summary) AddPod(pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if pod.Spec.NodeName == "" {
		addTo(&s.Resources.Allocating, requests)
		addTo(&s.Resources.Allocating, onePod)
		return
	}
	addTo(&s.Resources.Allocated, requests)
	addTo(&s.Resources.Allocated, onePod)
}

func addTo(sum *corev1.ResourceList, more corev1.ResourceList) {
	if *sum == nil {
		*sum = corev1.ResourceList{}
	}
	for name, q := range more {
		total := (*sum)[name]
		total.Add(q)
		(*sum)[name] = total
	}
}

// summaryDelay is the time to the next summary after one that read so many
// objects: at least the interval, and not above 100 objects a second.
func summaryDelay(interval time.Duration, read int) time.Duration {
	return max(interval, time.Duration(read)*10*time.Millisecond)
}
