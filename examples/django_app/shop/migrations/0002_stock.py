from django.db import migrations


def fill_the_shelves(apps, schema_editor):
    apps.get_model("shop", "Item").objects.create(name="lamp", stock=10)


class Migration(migrations.Migration):
    dependencies = [("shop", "0001_initial")]

    operations = [migrations.RunPython(fill_the_shelves, migrations.RunPython.noop)]
