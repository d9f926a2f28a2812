{{/* The certificate's secret: filled by the webhook itself, or by cert-manager. */}}
{{- define "sluice.webhookSecret" -}}
{{ include "sluice.componentName" (dict "root" . "component" "webhook") }}-certificate
{{- end }}

{{- define "sluice.webhookFlags" -}}
{{- $own := .Values.webhook -}}
{{- $name := include "sluice.componentName" (dict "root" . "component" "webhook") -}}
- {{ printf "--service=%s" $name | quote }}
{{- if $own.certManager.enabled }}
- --cert-dir=/etc/sluice/certificate
{{- else }}
- {{ printf "--secret=%s" (include "sluice.webhookSecret" .) | quote }}
- {{ printf "--mutating-configuration=%s" $name | quote }}
- {{ printf "--validating-configuration=%s" $name | quote }}
{{- end }}
{{- with include "sluice.runtimeClassName" . }}
{{- include "sluice.flag" (list "runtime-class" .) }}
{{- end }}
{{- if not (kindIs "invalid" $own.sandboxRuntimeClasses) }}
- {{ printf "--sandbox-runtime-classes=%s" (join "," $own.sandboxRuntimeClasses) | quote }}
{{- end }}
{{- range $own.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
