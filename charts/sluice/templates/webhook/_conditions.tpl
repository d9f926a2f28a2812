{{/*
CEL conditions that select the requests for the webhook. A pod uses Sluice if it has an annotation or label of Sluice, a label of
KubeShare, or states a resource of Sluice. No other pod may depend on the webhook, so the API server selects them without it.
*/}}

{{/* include "sluice.celMap" "object.metadata.annotations": the map, or an empty one */}}
{{- define "sluice.celMap" -}}
(has({{ . }}) ? {{ . }} : {})
{{- end }}

{{/* Whether a container of a non-empty list states a resource of Sluice. */}}
{{- define "sluice.celNamesResource" -}}
{{ . }}.exists(c, has(c.resources) && ((has(c.resources.limits) && c.resources.limits.exists(k, k.startsWith('sluice.dev/'))) || (has(c.resources.requests) && c.resources.requests.exists(k, k.startsWith('sluice.dev/')))))
{{- end }}

{{/* Whether the new pod uses Sluice. */}}
{{- define "sluice.celIsOurs" -}}
(has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('sluice.dev/')))
|| (has(object.metadata.labels) && object.metadata.labels.exists(k, k.startsWith('sluice.dev/') || k.startsWith('sharedgpu/')))
|| {{ include "sluice.celNamesResource" "object.spec.containers" }}
|| (has(object.spec.initContainers) && {{ include "sluice.celNamesResource" "object.spec.initContainers" }})
{{- end }}

{{/*
Nothing binds the scale-up pods, and they request Sluice's resources for the autoscaler's count alone. Only the scheduler's account creates
them without the webhook.
*/}}
{{- define "sluice.scaleUpScheduler" -}}scale-up.sluice.dev{{- end }}
{{- define "sluice.notScaleUpPods" -}}
{{- if .Values.scheduler.scaleUpPods -}}
- name: not-scale-up-pods
  expression: >-
    request.userInfo.username != '{{ include "sluice.userName" (dict "root" $ "component" "scheduler") }}' || object.spec.schedulerName != '{{ include "sluice.scaleUpScheduler" $ }}'
{{- end }}
{{- end }}

{{/* Whether the pod uses Sluice and gets a new debugging container. Existing ones cannot change any more. */}}
{{- define "sluice.celIsDebugged" -}}
has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('sluice.dev/'))
&& has(object.spec.ephemeralContainers)
&& object.spec.ephemeralContainers.exists(c, {{ include "sluice.celIsNew" $ }})
{{- end }}

{{/* Whether the pod uses Sluice and gets a new debugging container that does not set its visible GPUs. */}}
{{- define "sluice.celIsDebuggedBare" -}}
has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.startsWith('sluice.dev/'))
&& has(object.spec.ephemeralContainers)
&& object.spec.ephemeralContainers.exists(c, {{ include "sluice.celIsNew" $ }}
&& !(has(c.env) && c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES')))
{{- end }}

{{- define "sluice.celIsNew" -}}
!(has(oldObject.spec.ephemeralContainers) && oldObject.spec.ephemeralContainers.exists(o, o.name == c.name))
{{- end }}

{{/* Whether keys that begin with one of the prefixes differ: include "sluice.celSameKeys" (dict "map" "metadata.annotations" "prefix" "sluice.dev/") */}}
{{- define "sluice.celSameKeys" -}}
{{- $new := include "sluice.celMap" (printf "object.%s" .map) -}}
{{- $old := include "sluice.celMap" (printf "oldObject.%s" .map) -}}
{{ $new }}.all(k, !k.startsWith('{{ .prefix }}') || (k in {{ $old }} && {{ $old }}[k] == {{ $new }}[k]))
&& {{ $old }}.all(k, !k.startsWith('{{ .prefix }}') || k in {{ $new }})
{{- end }}

{{/* Whether the object has a configuration for the DRA driver: include "sluice.celConfiguresShares" "object.spec" */}}
{{- define "sluice.celConfiguresShares" -}}
{{ . }}.?config.orValue([]).exists(c, c.?opaque.?driver.orValue('') == 'gpu.sluice.dev')
{{- end }}

{{/* Whether the claim below this path asks for shares: by one of the chart's classes, or with a configuration for the driver. */}}
{{- define "sluice.celClaimsShares" -}}
{{ include "sluice.celConfiguresShares" (printf "%s.?devices" .) }}
|| {{ . }}.?devices.?requests.orValue([]).exists(r, r.?exactly.?deviceClassName.orValue('') in ['gpu.sluice.dev', 'mig.sluice.dev']
|| r.?firstAvailable.orValue([]).exists(s, s.deviceClassName in ['gpu.sluice.dev', 'mig.sluice.dev']))
{{- end }}

{{/* Namespaces that are excluded from the webhooks. */}}
{{- define "sluice.webhookNamespaces" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      - kube-system
      {{- range .Values.webhook.excludedNamespaces }}
      - {{ . }}
      {{- end }}
{{- end }}
